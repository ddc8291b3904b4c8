/*
 * The sweep: a pattern is swept twice, for SCAN may miss a value that was stored while it ran.
 *
 * One reader with L1 whose load may straddle the commit, a second one that comes at any time, both of which read a replica
 * that lags, for less than the hold; one key that a pattern matches. SCAN visits the place of the value and the place of the lease, in either order, and takes both together where it
 * finds one of them; a lease it may miss. With a SCAN that misses none, a second pass could follow at once.
 *
 * Rule 1: a second pass follows the first
 * Rule 2: the second pass begins when every lease from before the first has run out
 * Rule 3: the pattern is published after the second pass too
 * Rule 4: and every lease from before the end of the hold, which the replica needs to catch up
 *
 * At any time the worker is restarted with a map whose lease is shorter. Readers take the longer one
 * until the shorter one is announced.
 *
 * Rule 5: the longer lease counts after the restart too
 * Rule 6: until it has run out since the announcement of the shorter one
 * Rule 7: a reader whose answer has a shorter lease than the one that it took gives that one back
 * Rule 8: it asks behind each request for a lease, even if it has just asked
 */
bool committed;
byte db = 1;         /* the row as loaders see it: 1 is the old one, 2 the new one */
byte value;          /* in Redis */
byte lease;          /* its text in Redis */
byte texts;          /* how many texts were made */
byte first;          /* texts made when the time begins that a lease may take: these leases run out before the second pass */
bool longer;         /* the lease is one of the map before */
bool longerAnnounced = true; /* readers take such leases */
bool counts = true;  /* the second pass waits for such leases */
bool restarted;
byte l1[3];          /* in the processes */
byte evictions[3];
byte messages;       /* published */
bool swept;          /* the sweep is complete */
byte busy;

proctype Reader(byte me) {
	byte floor, mine, mark, got;
#ifdef WITHOUT_RULE_8
	bool asked; /* what it received before */
#endif

	atomic {
		printf("reader %d begins, swept %d\n", me, swept);
#ifdef WITHOUT_RULE_8
		asked = longerAnnounced;
#endif
		if
		:: swept -> floor = 2
		:: else -> floor = 1
		fi;
		mark = evictions[me]
	}
	atomic {
		if
		:: value -> got = value; printf("reader %d: Redis has %d\n", me, got); goto take
		:: else
		fi;
		if
		:: lease == 0 -> texts++; lease = texts; mine = lease;
#ifdef WITHOUT_RULE_7
			longer = true; /* as it received before */
#else
			longer = longerAnnounced;
#endif
#ifdef WITHOUT_RULE_8
			longer = asked;
#endif
			printf("reader %d is given lease %d, longer %d\n", me, mine, longer)
		:: else
		fi
	}
	atomic { got = db; printf("reader %d reads row %d\n", me, got) }
	atomic {
		if
		:: mine && lease == mine -> lease = 0; value = got; printf("Redis stores %d of reader %d\n", got, me)
		:: else -> printf("Redis refuses %d of reader %d\n", got, me); goto answer
		fi
	}
take:	atomic {
		if
		:: mark == evictions[me] -> l1[me] = got; printf("L1 of %d takes %d\n", me, got)
		:: else
		fi;
answer:		printf("reader %d answers %d\n", me, got);
		assert(got >= floor)
	}
	busy--
}

inline visitValue() {
	atomic {
		if
		:: value -> value = 0; lease = 0; printf("SCAN finds the value\n")
		:: else -> printf("SCAN finds no value\n")
		fi
	}
}

inline visitLease() {
	atomic {
		if
		:: lease -> value = 0; lease = 0; printf("SCAN finds the lease\n")
		:: true -> printf("SCAN finds no lease\n")
		fi
	}
}

inline pass() {
	if
	:: true -> visitValue(); visitLease()
	:: true -> visitLease(); visitValue()
	fi
}

proctype Worker() {
	atomic { committed = true; printf("commit of 2\n") }
	first = texts;
	pass();
	atomic { messages++; printf("worker publishes the pattern\n") }
#ifndef WITHOUT_RULE_1
	db == 2; /* the hold is over */
#ifndef WITHOUT_RULE_4
	first = texts;
#endif
#ifndef WITHOUT_RULE_2
	atomic {
		if
		:: lease && lease <= first && (counts || !longer) -> lease = 0; printf("the lease has run out\n")
		:: else
		fi
	}
#endif
	pass();
#ifndef WITHOUT_RULE_3
	messages++;
#endif
#endif
	atomic { swept = true; printf("the sweep is complete\n") }
	busy--
}

proctype Restart() {
	atomic {
		restarted = true; printf("the worker is restarted\n");
#ifdef WITHOUT_RULE_5
		counts = false
#endif
	}
	atomic { longerAnnounced = false; printf("the shorter lease is announced\n"); busy-- }
}

proctype Time() {
	atomic {
#ifdef WITHOUT_RULE_6
		restarted;
#else
		!longerAnnounced;
#endif
		if
		:: lease && longer -> lease = 0; printf("the longer lease has run out\n")
		:: else
		fi;
		counts = false; printf("the longer lease counts no more\n"); busy--
	}
}

proctype Replica() {
	atomic { committed; db = 2; printf("the replica has 2\n"); busy-- }
}

proctype Subscriber(byte me) {
end:	do
	:: atomic { evictions[me] < messages -> evictions[me]++; l1[me] = 0; printf("L1 of %d evicts\n", me) }
	od
}

init {
	if
	:: value = db; printf("Redis has 1\n")
	:: true
	fi;
	atomic { busy = 6; run Reader(1); run Reader(2); run Worker(); run Replica(); run Restart(); run Time(); run Subscriber(1); run Subscriber(2) }
	atomic { busy == 0 && evictions[1] == messages && evictions[2] == messages }
	assert(value != 1 && l1[1] != 1 && l1[2] != 1) /* nothing old is left */
}
