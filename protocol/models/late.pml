/*
 * Late copies: a client sends a command again when it hears no answer, and the first copy may reach Redis at any later time.
 *
 * Two readers of one key, one commit. Every command of the first reader may be executed once more, at any later time,
 * with the arguments that it had: the lease, the fill, the return of a lease. The lease may expire. Late stamps are in
 * stamps.pml.
 *
 * Rule 1: the text of a lease has TIME in it, made by the script; the reader's token alone is the same in every copy
 */
#define NONE 0
byte db = 1;    /* the row: 1 is the old one, 2 the new one */
byte value;     /* in Redis, 0 if there is none */
byte lease;     /* its text in Redis */
byte texts = 2; /* texts made from TIME; 1 and 2 are the tokens of the readers */
byte gone = 1;  /* a reader that begins now must not get less */
byte busy;

/* what the network keeps of the first reader and has not executed again */
bool lateLease, lateFill, lateBack;
byte sentLease, sentValue, sentOld;

inline leaseScript(token, reply) {
	if
	:: lease == NONE ->
#ifndef WITHOUT_RULE_1
		texts++; lease = texts;
#else
		lease = token;
#endif
		reply = lease
	:: else -> reply = NONE
	fi
}

inline fillScript(text, v) {
	if
	:: lease == text -> lease = NONE; value = v; printf("Redis stores %d under lease %d\n", v, text)
	:: else -> printf("Redis refuses %d under lease %d\n", v, text)
	fi
}

/* old: the value that goes with the lease, or NONE */
inline backScript(text, old) {
	if
	:: lease == text -> lease = NONE; value = (value == old -> NONE : value); printf("Redis takes lease %d back\n", text)
	:: else
	fi
}

proctype Reader(byte me) {
	byte floor, mine, got, old;

	atomic { floor = gone; printf("reader %d begins, %d or newer is right\n", me, floor) }
	atomic {
		if
		:: value -> got = value; printf("reader %d: Redis has %d\n", me, got); goto answer
		:: value -> old = value; printf("reader %d: Redis has %d, which is due\n", me, old)
		:: value == NONE
		fi;
		leaseScript(me, mine);
		printf("reader %d is given lease %d\n", me, mine);
		lateLease = (me == 1 -> true : lateLease)
	}
	atomic { got = db; printf("reader %d reads row %d\n", me, got) }
	if
	:: mine == NONE
	:: mine != NONE -> /* the load failed, or has nothing to store */
		atomic {
			if
			:: old = NONE
			:: true
			fi;
			backScript(mine, old);
			if
			:: me == 1 -> lateBack = true; sentLease = mine; sentOld = old
			:: else
			fi;
			goto end
		}
	:: mine != NONE ->
		atomic {
			fillScript(mine, got);
			if
			:: me == 1 -> lateFill = true; sentLease = mine; sentValue = got
			:: else
			fi
		}
	fi;
answer:
	atomic { printf("reader %d answers %d\n", me, got); assert(got >= floor) }
end:
	busy--
}

proctype Network() {
	byte ignored;
end:	do
	:: atomic { lateLease -> lateLease = false; leaseScript(1, ignored); printf("a late copy makes lease %d\n", ignored); ignored = 0 }
	:: atomic { lateFill -> lateFill = false; printf("a late copy of a fill\n"); fillScript(sentLease, sentValue) }
	:: atomic { lateBack -> lateBack = false; printf("a late copy of a lease's return\n"); backScript(sentLease, sentOld) }
	:: atomic { lease -> lease = NONE; printf("the lease expires\n") }
	od
}

proctype Worker() {
	atomic { db = 2; printf("commit of 2\n") }
	atomic { lease = NONE; value = 0; printf("worker unlinks\n") }
	atomic { gone = 2; printf("the invalidation is complete\n") }
	busy--
}

init {
	atomic { busy = 3; run Reader(1); run Reader(2); run Worker(); run Network() }
	atomic {
		busy == 0;
		assert(value != 1) /* nothing old is left */
	}
}
