/*
 * The compare: a caller that asks for a lease names the value that it judged useless, by its hash.
 *
 * Redis has an entry that no caller can use: a wrong stamp, a corrupt entry. Two callers find it, ask for a lease, load and
 * fill; who finds a lease of the other waits for it and asks again. This rule is about work, not about old values: every
 * caller ends, and nobody loads when a good value is there.
 *
 * Rule 1: the lease script does not return the value that its caller judged useless
 * Rule 2: it returns any other value instead of giving a lease
 */
#define NONE 0
#define USELESS 1
#define GOOD 2
byte value = USELESS; /* in Redis */
byte lease;           /* its text in Redis */
byte texts;           /* how many texts were made */
byte loads;
byte busy;

proctype Caller(byte me) {
	byte judged, mine, tries;

	atomic { judged = value; printf("caller %d finds %d\n", me, judged) }
	if
	:: judged == GOOD -> goto end
	:: else
	fi;
ask:
	atomic {
		tries++;
		assert(tries <= 3); /* else it goes round for ever */
		if
#ifdef WITHOUT_RULE_1
		:: value -> judged = value; printf("caller %d: the script returns %d\n", me, judged)
#endif
#ifndef WITHOUT_RULE_2
		:: value && value != judged -> judged = value; printf("caller %d: the script returns %d\n", me, judged)
#endif
		:: else ->
			if
			:: lease == NONE -> texts++; lease = texts; mine = lease; printf("caller %d is given lease %d\n", me, mine)
			:: else -> printf("caller %d: somebody has lease %d\n", me, lease)
			fi
		fi
	}
	if
	:: mine -> skip
	:: !mine && judged == GOOD -> goto end
	:: !mine && judged != GOOD -> lease == NONE; goto ask
	fi;
	atomic { loads++; printf("caller %d loads\n", me); assert(loads == 1) }
	atomic {
		if
		:: lease == mine -> lease = NONE; value = GOOD; printf("caller %d fills\n", me)
		:: else
		fi
	}
end:
	busy--
}

init {
	atomic { busy = 2; run Caller(1); run Caller(2) }
	atomic { busy == 0; assert(value == GOOD) }
}
