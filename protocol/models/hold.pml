/*
 * Hold: loaders that read a replica, which learns of a commit later than Redis learns of the invalidation.
 *
 * Two callers in one process with L1, one commit, a replica that lags. A tombstone is set for longer than the lag and
 * expires at some time after the replica has caught up; a lease may live longer than that. A second invalidation of the
 * same key, by an older row, asks for a shorter hold, which may be over at any time. Without a hold callers may share a
 * load as in flights.pml.
 *
 * Rule 1: no lease is given while the tombstone stands
 * Rule 2: UNLINK of a key never names its tombstone
 * Rule 3: a shorter hold never shortens a longer one
 * Rule 4: the tombstone is set before the UNLINK, not after it
 * Rule 5: the flight of a held key takes no joiners once its load begins
 * Rule 6: L1 takes a loaded value only if Redis accepted the fill
 */
#define NONE 0
#define SHORT 1
#define LONG 2
byte replica = 1;   /* the row as loaders see it: 1 is the old one, 2 the new one */
bool committed;
byte value;         /* in Redis */
byte lease;         /* its text in Redis */
byte texts;         /* how many texts were made */
byte hold;          /* the tombstone in Redis: none, a short or a long one */
byte l1;            /* in the process */
byte evictions;     /* what was evicted from it */
byte open;          /* whose flight takes joiners, 0 for nobody's */
byte result[3];     /* of a flight that has ended: the answer for joiners, 0 for none; by its leader */
bool over[3];       /* the flight has ended */
bool unlinked;      /* the invalidation of the commit is complete */
bool delivered;     /* and the process has heard of it */
byte busy;

/* What a caller that begins now may expect: the new row, once Redis and the replica have it. */
#define FLOOR (unlinked && replica == 2 -> 2 : 1)

proctype Caller(byte me) {
	byte floor, leader, mine, mark, got;
	bool held, accepted;

	atomic {
		printf("caller %d begins\n", me);
		if
		:: l1 -> got = l1; printf("caller %d: L1 has %d\n", me, got); assert(!delivered || got >= FLOOR); goto end
		:: else -> floor = FLOOR
		fi
	}
look:
	atomic {
		mark = evictions;
		if
		:: open == 0 -> open = me; printf("caller %d leads a flight\n", me)
		:: else -> leader = open; printf("caller %d joins the flight of %d\n", me, leader); goto join
		fi
	}
	atomic {
		if
		:: value -> got = value; printf("caller %d: Redis has %d\n", me, got)
		:: else
		fi;
#ifndef WITHOUT_RULE_1
		held = (hold != NONE);
#endif
		if
		:: got -> open = 0; goto finish
		:: held -> printf("caller %d: the key is held\n", me)
		:: !got && !held ->
			if
			:: lease == NONE -> texts++; lease = texts; mine = lease; printf("caller %d is given lease %d\n", me, mine)
			:: else
			fi
		fi
	}
#ifndef WITHOUT_RULE_5
	atomic {
		if
		:: held -> open = 0
		:: else
		fi
	}
#endif
	atomic { got = replica; printf("caller %d reads row %d\n", me, got) }
	atomic { /* no joiner comes any more, the fill */
		open = (open == me -> 0 : open);
		if
		:: mine && lease == mine && hold == NONE -> lease = NONE; value = got; accepted = true; printf("Redis stores %d of caller %d\n", got, me)
		:: else -> printf("Redis does not store %d of caller %d\n", got, me)
		fi
	}
	atomic {
		if
		:: accepted || held -> result[me] = got
		:: else
		fi;
#ifdef WITHOUT_RULE_6
		accepted = true;
#endif
		if
		:: accepted && mark == evictions -> l1 = got; printf("L1 takes %d\n", got)
		:: else
		fi;
finish:		over[me] = true;
		goto answer
	}
join:
	atomic {
		over[leader];
		got = result[leader];
		if
		:: got == 0 -> goto look
		:: else
		fi;
answer:		printf("caller %d answers %d\n", me, got);
		assert(got >= floor)
	}
end:
	busy--
}

inline setHold(length) {
	atomic {
#ifndef WITHOUT_RULE_3
		hold = (hold > length -> hold : length);
#else
		hold = length;
#endif
		printf("worker sets tombstone %d, it is %d\n", length, hold)
	}
}

inline unlink() {
	atomic {
		lease = NONE; value = 0;
#ifdef WITHOUT_RULE_2
		hold = NONE;
#endif
		printf("worker unlinks\n")
	}
}

proctype Worker(byte length) {
	if
	:: length == LONG -> atomic { committed = true; printf("commit of 2\n") }
	:: else
	fi;
#ifndef WITHOUT_RULE_4
	setHold(length);
	unlink();
#else
	unlink();
	setHold(length);
#endif
	if
	:: length == LONG ->
		atomic { unlinked = true; printf("the invalidation is complete\n") }
		atomic { evictions++; l1 = 0; delivered = true; printf("the message is delivered, L1 evicts\n") }
	:: else
	fi;
	busy--
}

proctype Replica() {
	atomic { committed; replica = 2; printf("the replica has 2\n"); busy-- }
}

proctype Clock() {
end:	do
	:: atomic { hold == SHORT || (hold == LONG && replica == 2) -> hold = NONE; printf("the tombstone expires\n") }
	od
}

init {
	atomic { busy = 5; run Caller(1); run Caller(2); run Worker(LONG); run Worker(SHORT); run Replica(); run Clock() }
	atomic {
		busy == 0;
		assert(value != 1 && l1 != 1) /* nothing old is left */
	}
}
