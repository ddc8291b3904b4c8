/*
 * The lease: who loaded before a commit cannot store after the invalidation.
 *
 * Two readers and one commit of one key. Each reader asks for a lease and, when it gets one, loads and fills. A value that
 * was read may be due for another load. A lease may expire at any time, a load may fail or have nothing to store, and the
 * worker unlinks by one command or, as during a slot migration, by two.
 *
 * Rule 1: the worker unlinks the lease of a key too, not the value alone
 * Rule 2: the lease goes first or together with the value, never after it
 * Rule 3: a fill stores only under exactly the text that its reader was given, not under any lease
 * Rule 4: the lease is taken before the value is read, so for Set as well
 * Rule 5: a load that has nothing to store removes the value from before it, and only under its lease
 */
byte db = 1;   /* the row: 1 is the old one, 2 the new one */
byte value;    /* in Redis, 0 if there is none */
byte lease;    /* its text in Redis, 0 if there is none */
byte texts;    /* how many texts were made */
byte gone = 1; /* a reader that begins now must not get less */
byte busy;     /* readers and the worker at work */

proctype Reader(byte me) {
	byte floor, mine, got, waits, old;

	atomic {
		floor = gone;
		printf("reader %d begins, %d or newer is right\n", me, floor)
	}
#ifdef WITHOUT_RULE_4
	atomic { got = db; printf("reader %d reads row %d before it asks for a lease\n", me, got) }
#endif
ask:
	atomic {
		mine = 0;
		if
		:: value && value != old -> got = value; printf("reader %d: Redis has %d\n", me, got); goto answer
		:: value && old == 0 -> old = value; printf("reader %d: Redis has %d, which is due\n", me, old)
		:: value == 0 || value == old
		fi;
		if
		:: lease == 0 -> texts++; mine = texts; lease = mine; printf("reader %d is given lease %d\n", me, mine)
		:: else -> printf("reader %d: somebody has lease %d\n", me, lease)
		fi
	}
	if
	:: mine == 0 && waits == 0 -> (lease == 0 || value != old); waits = 1; goto ask
	:: mine == 0 -> skip /* waited long enough: loads, stores nothing */
	:: mine != 0 -> skip
	fi;
#ifndef WITHOUT_RULE_4
	atomic { got = db; printf("reader %d reads row %d\n", me, got) }
#endif
	if
	:: mine && true -> /* the load failed: the lease is given back */
		atomic {
			if
			:: lease == mine -> lease = 0; printf("reader %d: no answer, gives lease %d back\n", me, mine)
			:: else
			fi;
			goto end
		}
	:: mine && true -> /* nothing to store */
		atomic {
			if
#ifndef WITHOUT_RULE_5
			:: lease == mine ->
#else
			:: true ->
#endif
				assert(value == 0 || value == old); /* no other load's value goes */
				lease = (lease == mine -> 0 : lease); value = 0; printf("reader %d: nothing to store, %d goes\n", me, old)
			:: lease != mine
			fi;
			goto answer
		}
	:: mine ->
		atomic {
			if
#ifndef WITHOUT_RULE_3
			:: lease == mine ->
#else
			:: lease ->
#endif
				lease = 0; value = got; printf("reader %d fills %d under lease %d\n", me, got, mine)
			:: else -> printf("reader %d: fill of %d is refused\n", me, got)
			fi
		}
	:: mine == 0
	fi;
answer:
	atomic {
		printf("reader %d answers %d\n", me, got);
		assert(got >= floor)
	}
end:
	busy--
}

proctype Worker() {
	atomic { db = 2; printf("commit of 2\n") }
	if
	:: atomic {
#ifndef WITHOUT_RULE_1
		lease = 0;
#endif
		value = 0; printf("worker unlinks by one command\n")
	   }
#ifndef WITHOUT_RULE_1
#ifndef WITHOUT_RULE_2
	:: atomic { lease = 0; printf("worker unlinks the lease\n") }
	   atomic { value = 0; printf("worker unlinks the value\n") }
#else
	:: atomic { value = 0; printf("worker unlinks the value\n") }
	   atomic { lease = 0; printf("worker unlinks the lease\n") }
#endif
#endif
	fi;
	atomic { gone = 2; printf("the invalidation is complete\n") }
	busy--
}

proctype Clock() {
end:	do
	:: atomic { lease -> lease = 0; printf("the lease expires\n") }
	od
}

init {
	atomic { busy = 3; run Reader(1); run Reader(2); run Worker(); run Clock() }
	atomic {
		busy == 0;
		assert(value != 1) /* nothing old is left in Redis */
	}
}
