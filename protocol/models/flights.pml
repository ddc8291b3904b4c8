/*
 * Flights: callers of one process that want the same key share one load, and still none gets less than it may expect.
 *
 * Two callers in one process, one key with one tag, one commit that invalidates the key or the tag. The first caller that
 * finds no flight leads one: lease and stamp, load, fill. The fill is executed some time before its reply arrives.
 *
 * Rule 1: a flight takes no joiners once its fill is sent
 * Rule 2: joiners get the result only if the fill was accepted
 * Rule 3: joiners get the result only if the stamp, read again, is the one from before the load
 * Rule 4: the stamp is read again when the flight takes no more joiners, not merely after the load
 * Rule 5: an entry that the leader found in Redis answers no joiner, who may have come after it was read
 */
#define NONE 0
#define NOBODY 3
#define CALLERS 2
byte db = 1;             /* the row: 1 is the old one, 2 the new one */
byte value, vstamp;      /* in Redis: the value, and the stamp stored with it */
byte lease, stamp = 1;   /* in Redis */
byte texts = 1;          /* how many texts were made */
byte gone = 1;           /* a caller that begins now must not get less */
byte busy;

byte open = NOBODY;      /* whose flight takes joiners */
byte result[NOBODY];     /* of a flight that has ended: the answer for joiners, 0 for none; by its leader */
bool over[NOBODY];       /* the flight has ended */

inline readStamp(s) {
	atomic {
		if
		:: stamp == NONE -> texts++; stamp = texts
		:: else
		fi;
		s = stamp
	}
}

inline close() {
	atomic {
		if
		:: open == me -> open = NOBODY; printf("caller %d's flight takes no more joiners\n", me)
		:: else
		fi
	}
}

proctype Caller(byte me) {
	byte floor, leader, mine, tag, again, got;
	bool accepted;

	atomic { floor = gone; printf("caller %d begins, %d or newer is right\n", me, floor) }
look:
	atomic {
		if
		:: open == NOBODY -> open = me
		:: else -> leader = open; printf("caller %d joins the flight of %d\n", me, leader); goto join
		fi;
		printf("caller %d leads a flight\n", me)
	}
	readStamp(tag);
	atomic {
		if
		:: value && vstamp == tag -> got = value; printf("caller %d: Redis has %d\n", me, got); goto hit
		:: else
		fi;
		if
		:: lease == NONE -> texts++; lease = texts; mine = lease
		:: else /* somebody else's: loads, stores nothing */
		fi
	}
	atomic { got = db; printf("caller %d reads row %d\n", me, got) }
#ifdef WITHOUT_RULE_4
	readStamp(again);
#endif
#ifndef WITHOUT_RULE_1
	close();
#endif
	atomic {
		if
		:: mine && lease == mine -> lease = NONE; value = got; vstamp = tag; accepted = true; printf("Redis stores %d of caller %d\n", got, me)
		:: else -> printf("Redis refuses %d of caller %d\n", got, me)
		fi
	}
#ifndef WITHOUT_RULE_4
	readStamp(again);
#endif
	close();
	atomic {
#ifdef WITHOUT_RULE_2
		accepted = true;
#endif
#ifdef WITHOUT_RULE_3
		again = tag;
#endif
		result[me] = (accepted && again == tag -> got : 0);
		over[me] = true;
		goto answer
	}
hit:	close();
	atomic {
#ifdef WITHOUT_RULE_5
		result[me] = got;
#endif
		over[me] = true;
		goto answer
	}
join:
	atomic { over[leader]; got = result[leader] }
	if
	:: got == 0 -> goto look
	:: else
	fi;
answer:
	atomic { printf("caller %d answers %d\n", me, got); assert(got >= floor) }
	busy--
}

proctype Worker() {
	atomic { db = 2; printf("commit of 2\n") }
	if
	:: atomic { lease = NONE; value = 0; vstamp = NONE; printf("worker unlinks the key\n") }
	:: atomic { stamp = NONE; printf("worker unlinks the stamp\n") }
	fi;
	atomic { gone = 2; printf("the invalidation is complete\n") }
	busy--
}

proctype Clock() {
end:	do
	:: atomic { lease -> lease = NONE; printf("the lease expires\n") }
	od
}

init {
	if
	:: value = db; vstamp = stamp; printf("Redis has 1\n")
	:: true
	fi;
	atomic { busy = CALLERS + 1; run Caller(1); run Caller(2); run Worker(); run Clock() }
	atomic {
		busy == 0;
		assert(!(value == 1 && vstamp == stamp)) /* nothing old is left */
	}
}
