/*
 * The cache in the process (L1): it takes nothing that was invalidated while the process was busy with it.
 *
 * Two callers in one process with L1, one key with one tag, one commit that invalidates the key or the tag. The worker's
 * message arrives some time after it was published, and every reply some time after its command was executed. A delivery
 * evicts from L1 and is noted in a log; a mark is a place in that log. L1 does not look at stamps.
 * That a fill must have been accepted at all is in hold.pml: here a refused one is always followed by a message.
 *
 * Rule 1: what was read from Redis is taken only if nothing was evicted since before the read was sent
 * Rule 2: what Redis accepted is taken only if nothing was evicted meanwhile either
 * Rule 3: for that, the mark is from before the stamp was read; from before the fill is too late for a tag
 * Rule 4: the worker publishes after Redis has answered the UNLINK, not before
 * Rule 5: what a load has superseded that has nothing to store goes from Redis first, and then from L1
 */
#define NONE 0
byte db = 1;           /* the row: 1 is the old one, 2 the new one, 0 one that is never stored */
byte value, vstamp;    /* in Redis: the value, and the stamp stored with it */
byte lease, stamp = 1; /* in Redis */
byte texts = 1;        /* how many texts were made */
byte l1;               /* in the process */
byte evictions;        /* the length of the log */
byte gone = 1;         /* a read of Redis or of the row that begins now must not get less */
byte heard = 1;        /* a read of L1 that begins now must not get less */
bool published;
bool removed;          /* the value that an earlier row left behind */
byte busy;

proctype Caller(byte me) {
	byte floor, mine, tag, mark, got, old;
	bool accepted;

	atomic {
		printf("caller %d begins\n", me);
		if
		:: l1 -> printf("caller %d: L1 has %d\n", me, l1); assert(l1 >= heard); goto end
		:: else -> floor = gone
		fi;
#ifndef WITHOUT_RULE_1
		mark = evictions
#endif
	}
	/* one round trip: value and stamp; the stamp is made if there is none */
	atomic {
		if
		:: stamp == NONE -> texts++; stamp = texts
		:: else
		fi;
		tag = stamp
	}
	atomic {
		if
		:: value && vstamp == tag -> got = value; printf("caller %d: Redis has %d\n", me, got); goto hit
		:: value && vstamp == tag && db == 0 -> old = value; printf("caller %d: Redis has %d, which is due\n", me, old)
		:: !(value && vstamp == tag)
		fi;
		if
		:: lease == NONE -> texts++; lease = texts; mine = lease; printf("caller %d is given lease %d\n", me, mine)
		:: else
		fi
	}
	atomic { got = db; printf("caller %d reads row %d\n", me, got) }
	if
	:: mine == NONE -> goto answer
	:: mine != NONE && got == 0 -> goto remove
	:: else
	fi;
#ifdef WITHOUT_RULE_3
	mark = evictions;
#endif
	atomic {
		if
		:: lease == mine -> lease = NONE; value = got; vstamp = tag; accepted = true; printf("Redis stores %d of caller %d\n", got, me)
		:: else -> printf("Redis refuses %d of caller %d\n", got, me)
		fi
	}
	atomic { /* the reply arrives */
#ifdef WITHOUT_RULE_2
		mark = evictions;
#endif
		if
		:: accepted && mark == evictions -> l1 = got; printf("L1 takes %d\n", got)
		:: else -> printf("L1 does not take %d\n", got)
		fi;
		goto answer
	}
remove:
#ifdef WITHOUT_RULE_5
	atomic { evictions++; l1 = 0; printf("L1 evicts\n") }
#endif
	atomic {
		if
		:: lease == mine -> lease = NONE; accepted = (value == old && old != NONE); value = (value == old -> 0 : value); printf("Redis removes %d\n", old)
		:: else
		fi
	}
#ifndef WITHOUT_RULE_5
	atomic { evictions++; l1 = 0; printf("L1 evicts\n") }
#endif
	atomic { removed = removed || accepted; assert(!removed || l1 != 1); goto answer }
hit:
#ifdef WITHOUT_RULE_1
	mark = evictions;
#endif
	atomic { /* the reply arrives */
		if
		:: mark == evictions -> l1 = got; printf("L1 takes %d\n", got); assert(!removed || l1 != 1)
		:: else -> printf("L1 does not take %d\n", got)
		fi
	}
answer:
	atomic { printf("caller %d answers %d\n", me, got); assert(got >= floor) }
end:
	busy--
}

proctype Worker() {
	atomic { db = 2; printf("commit of 2\n") }
#ifdef WITHOUT_RULE_4
	atomic { published = true; printf("worker publishes\n") }
#endif
	if
	:: atomic { lease = NONE; value = 0; vstamp = NONE; gone = 2; printf("worker unlinks the key\n") }
	:: atomic { stamp = NONE; gone = 2; printf("worker unlinks the stamp\n") }
	fi;
#ifndef WITHOUT_RULE_4
	atomic { published = true; printf("worker publishes\n") }
#endif
	busy--
}

proctype Subscriber() {
	atomic { published; evictions++; l1 = 0; heard = 2; printf("the message is delivered, L1 evicts\n") }
	busy--
}

init {
	if
	:: value = db; vstamp = stamp; printf("Redis has 1\n")
	:: db = 0; gone = 0; heard = 0; value = 1; vstamp = stamp; printf("Redis has 1, and the row nothing to store\n")
	:: true
	fi;
	atomic { busy = 4; run Caller(1); run Caller(2); run Worker(); run Subscriber() }
	atomic {
		busy == 0;
		assert(l1 != 1 && !(value == 1 && vstamp == stamp)) /* nothing old is left */
	}
}
