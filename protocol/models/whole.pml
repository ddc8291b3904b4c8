/*
 * The whole: two readers, each a process with L1, two fetches each, two commits of one key.
 *
 * Leases, the rules of L1 and the worker's order together. The first commit may be invalidated after the second one, each
 * message is delivered to each process at any time after it was published, and a lease may expire once. One worker handles
 * the commits one after another.
 *
 * Rule 1: the worker unlinks the lease with the value
 * Rule 2: a fill stores only under exactly the text that its reader was given
 * Rule 3: L1 takes what was read from Redis only if nothing was evicted since before the read
 * Rule 4: L1 takes what was loaded only if nothing was evicted since before the lease
 * Rule 5: the worker publishes after the UNLINK
 */
byte db = 1;         /* the row, counted by commits */
byte value;          /* in Redis */
byte lease;          /* its text in Redis */
byte texts;          /* how many texts were made */
byte gone = 1;       /* a read of Redis or of the row that begins now must not get less */
byte published = 1;
byte l1[2];          /* in the processes */
byte heard[2] = 1;   /* a read of L1 that begins now must not get less; grows with each eviction, as a mark does */
bool expired;
byte busy;

proctype Reader(byte me) {
	byte floor, mine, mark, got;
	byte fetches;

	do
	:: fetches < 2 ->
		atomic {
			fetches++;
			if
			:: l1[me] -> printf("reader %d: L1 has %d\n", me, l1[me]); assert(l1[me] >= heard[me]); goto next
			:: else -> floor = gone; mark = heard[me]; printf("reader %d begins, %d or newer is right\n", me, floor)
			fi
		}
		atomic {
			if
			:: value -> got = value; printf("reader %d: Redis has %d\n", me, got); goto take
			:: else
			fi;
			if
			:: lease == 0 -> texts++; lease = texts; mine = texts; printf("reader %d is given lease %d\n", me, mine)
			:: else -> printf("reader %d: somebody has lease %d\n", me, lease)
			fi
		}
		atomic { got = db; printf("reader %d reads row %d\n", me, got) }
		atomic {
			if
			:: mine == 0 -> goto answer /* stores nothing */
			:: else
			fi;
			if
#ifndef WITHOUT_RULE_2
			:: lease == mine ->
#else
			:: lease ->
#endif
				lease = 0; value = got; printf("Redis stores %d of reader %d\n", got, me)
			:: else -> printf("Redis refuses %d of reader %d\n", got, me); goto answer
			fi
		}
take:		atomic { /* the reply arrives */
#ifdef WITHOUT_RULE_3
			mark = (mine -> mark : heard[me]);
#endif
#ifdef WITHOUT_RULE_4
			mark = (mine -> heard[me] : mark);
#endif
			if
			:: mark == heard[me] -> l1[me] = got; printf("L1 of %d takes %d\n", me, got)
			:: else -> printf("L1 of %d does not take %d\n", me, got)
			fi;
answer:			printf("reader %d answers %d\n", me, got);
			assert(got >= floor);
next:			floor = 0; mine = 0; mark = 0; got = 0
		}
	:: else -> break
	od;
	busy--
}

proctype Writer() {
	atomic { db = 2; printf("commit of 2\n") }
	atomic { db = 3; printf("commit of 3\n"); busy-- }
}

proctype Worker() {
	byte handled = 1, taken;

	do
	:: handled < 3 ->
		atomic {
			if
			:: db > handled -> taken = handled + 1 /* one row */
			:: db > handled + 1 -> taken = db      /* both rows in one batch */
			fi
		}
#ifdef WITHOUT_RULE_5
		atomic { published = taken; printf("worker publishes %d\n", taken) }
#endif
		atomic {
#ifndef WITHOUT_RULE_1
			lease = 0;
#endif
			value = 0; gone = taken; printf("worker unlinks for %d\n", taken)
		}
#ifndef WITHOUT_RULE_5
		atomic { published = taken; printf("worker publishes %d\n", taken) }
#endif
		handled = taken
	:: else -> break
	od;
	busy--
}

proctype Subscriber(byte me) {
	do
	:: atomic { heard[me] < published -> heard[me]++; l1[me] = 0; printf("L1 of %d evicts, message %d\n", me, heard[me]) }
	:: atomic { heard[me] == 3 -> busy--; break }
	od
}

proctype Clock() {
end:	do
	:: atomic { lease && !expired -> expired = true; lease = 0; printf("the lease expires\n") }
	od
}

init {
	atomic {
		busy = 6;
		run Reader(0); run Reader(1); run Writer(); run Worker(); run Subscriber(0); run Subscriber(1); run Clock()
	}
	atomic {
		busy == 0;
		assert((value == 0 || value == 3) && (l1[0] == 0 || l1[0] == 3) && (l1[1] == 0 || l1[1] == 3)) /* nothing old is left */
	}
}
