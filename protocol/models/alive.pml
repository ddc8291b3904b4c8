/*
 * The question where workers write: a value of a server that they have left is not used for longer than LIFE and a pause.
 *
 * Two callers, who come again and again and may share a pipeline, one connection, and two servers. Workers write to the
 * first server whenever they do, and once move to the second one, which has no field before. A connection leads to one
 * server until it is cut. The next one may lead to either, after the switch-over to the second one only. What has no answer
 * when it is cut fails or is sent again, as libraries do. The first server may also become a replica of the second one, with
 * its values and its field, and connections survive that. Commands and replies take any time, and keep their order on a
 * connection. LIFE and PAUSE stand for 3 s and 250 ms; the pause is PAUSE, or 0 for a client that asks in each pipeline.
 *
 * A caller that begins more than LIFE and the pause after the latest write of a worker to a server gets no value of it, unless
 * one writes there again. When no worker writes anywhere, a caller that begins more than the pause after the move and the
 * switch-over gets no value of the first server.
 *
 * Rule 1: a pipeline answers nobody who came after it was sent
 * Rule 2: an answer counts for its connection only, so the first pipeline of each connection asks
 * Rule 3: so does each one that is sent more than the pause after the latest question
 * Rule 4: that time counts since the question was sent, not since its answer
 * Rule 5: the question is in front of the reads
 * Rule 6: after an old answer values are used only if a new connection gets an old one too
 * Rule 7: and only if that has the same time of writing
 */
#ifndef LIFE
#define LIFE 2
#define PAUSE 1
#endif
#define DUE (PAUSE + 1)
#define LONG (LIFE + PAUSE + 1)

/* what a caller does */
#define IDLE 0
#define SENT 1
#define JOINED 2 /* the read of the other one */
#define ASKED 3  /* sent in front of the question */
#define GOT 4    /* a value, and awaits the answer behind it */

byte pause;                /* 0 or PAUSE */
byte since[2];             /* since a worker wrote to a server, up to LONG */
byte has[2];               /* whose values and field a server has */
bool moved;                /* workers write to the second server */
bool switched;             /* new connections lead there */
byte gone;                 /* since both, up to DUE */

chan up = [5] of { byte };         /* commands: 0 is the question, others the read of a caller */
chan down = [5] of { byte, byte }; /* replies */
byte at;                   /* where the connection leads */
byte asked = DUE;          /* since a question was sent, up to DUE */
byte verdict;              /* of the latest answer */
#define UNUSABLE 0
#define YOUNG 1
#define SAME 2             /* it is old, and a new connection gets the same */

byte caller[3];
byte value[3];             /* whose it is that a caller has got */
bool late[6];              /* by caller and server: it began too long after the latest write */
bool lost[3];              /* it began too long after the move and the switch-over */
#define LATE(c, s) late[2 * (c) - 2 + (s)]

inline begin(c) {
	LATE(c, 0) = (since[0] > LIFE + pause); LATE(c, 1) = (since[1] > LIFE + pause); lost[c] = (gone > pause);
	printf("caller %d begins\n", c)
}

inline leave(c) { caller[c] = IDLE; value[c] = 0; LATE(c, 0) = false; LATE(c, 1) = false; lost[c] = false }

inline use(c, v) {
	if
	:: verdict == UNUSABLE -> printf("caller %d does not use the value\n", c)
	:: verdict == YOUNG -> printf("caller %d uses the value of server %d\n", c, v); assert(!LATE(c, v))
	:: verdict == SAME -> printf("caller %d uses the value of server %d, as no worker writes\n", c, v); assert(v == 1 || !lost[c])
	fi;
	leave(c)
}

inline ask() { up!0; asked = (pause -> 0 : DUE); printf("the question is sent\n") }

inline read(c) {
#ifndef WITHOUT_RULE_5
	up!c; caller[c] = SENT; printf("the read of caller %d is sent\n", c)
#else
	up!c; caller[c] = (asked > pause -> ASKED : SENT); printf("the read of caller %d is sent\n", c)
#endif
}

/* send: one pipeline for the first of two callers, or for both. */
inline send(c, both) {
#ifndef WITHOUT_RULE_5
	if
	:: asked > pause -> ask()
	:: else
	fi;
#endif
	begin(c); read(c);
	if
	:: both -> begin(2); read(2)
	:: else
	fi;
#ifdef WITHOUT_RULE_5
	if
	:: asked > pause -> ask()
	:: else
	fi
#endif
}

inline got(c, v) {
	if
	:: caller[c] == ASKED -> caller[c] = GOT; value[c] = v; printf("caller %d has a value, and awaits the answer\n", c)
	:: else ->
		use(c, v);
		if
		:: caller[2] == JOINED -> use(2, v)
		:: else
		fi
	fi
}

/* answered: 2 is a young field, 0 or 1 the old one, or none, of that server. */
inline answered(a) {
#ifdef WITHOUT_RULE_4
	asked = 0;
#endif
	verdict = (a == 2 -> YOUNG : UNUSABLE);
	printf("the answer is young: %d\n", a == 2);
	if
	:: a != 2 ->
		if
		:: !switched -> n = 0
		:: n = 1
		fi;
		if
#ifdef WITHOUT_RULE_6
		:: true -> verdict = SAME
#endif
#ifndef WITHOUT_RULE_7
		:: since[has[n]] > LIFE && has[n] == a -> verdict = SAME; printf("a new connection to server %d gets the same\n", n)
#else
		:: since[has[n]] > LIFE -> verdict = SAME; printf("a new connection to server %d gets an old one\n", n)
#endif
		:: else
		fi;
		n = 0
	:: else
	fi;
	if
	:: caller[1] == GOT -> v = value[1]; use(1, v)
	:: else
	fi;
	if
	:: caller[2] == GOT -> v = value[2]; use(2, v)
	:: else
	fi
}

inline fail(c) {
	if
	:: caller[c] != IDLE -> leave(c)
	:: else
	fi
}

proctype Client() {
	byte c, v, n;
end:	do
	:: atomic { len(up) + len(down) < 3 && caller[1] == IDLE && caller[2] == IDLE -> send(1, true) }
	:: atomic { len(up) + len(down) < 3 && caller[1] == IDLE -> send(1, false) }
	:: atomic { len(up) + len(down) < 3 && caller[1] != IDLE && caller[2] == IDLE -> send(2, false) }
#ifdef WITHOUT_RULE_1
	:: atomic { caller[1] == SENT && caller[2] == IDLE -> begin(2); caller[2] = JOINED; printf("it joins the other one\n") }
#endif
	:: atomic { down?c,v ->
		if
		:: c == 0 -> answered(v)
		:: else -> got(c, v)
		fi;
		c = 0; v = 0 }
	:: atomic { true -> printf("the connection is cut\n");
		if
		:: fail(1); fail(2);
			do
			:: up?c
			:: down?c,v
			:: empty(up) && empty(down) -> break
			od
		:: nempty(up) || nempty(down) ->
			n = len(up);
			do
			:: down?c,v -> up!c
			:: empty(down) -> break
			od;
			do
			:: n > 0 -> up?c; up!c; n--
			:: n == 0 -> break
			od;
			printf("what has no answer is sent again\n")
		fi;
#ifndef WITHOUT_RULE_2
		asked = DUE; verdict = UNUSABLE;
#endif
		if
		:: !switched -> at = 0
		:: at = 1
		fi;
		c = 0; v = 0;
		printf("the next one leads to server %d\n", at) }
	od
}

proctype Server() {
	byte c;
end:	do
	:: atomic { up?c ->
		if
		:: c == 0 -> down!0,(since[has[at]] > LIFE -> has[at] : 2)
		:: else -> down!c,has[at]
		fi;
		c = 0 }
	od
}

inline wrote(s) { since[s] = 0; LATE(1, s) = false; LATE(2, s) = false; printf("a worker writes to server %d\n", s) }

proctype World() {
end:	do
	:: atomic { !moved -> wrote(0) }
	:: atomic { !moved -> moved = true; printf("workers move\n"); wrote(1) }
	:: atomic { moved -> wrote(1) }
	:: atomic { !switched -> switched = true; printf("new connections lead to server 1\n") }
	:: atomic { moved && has[0] == 0 -> has[0] = 1; printf("server 0 becomes a replica\n") }
	:: atomic { printf("time passes\n");
		since[0] = (since[0] < LONG -> since[0] + 1 : LONG);
		since[1] = (since[1] < LONG -> since[1] + 1 : LONG);
#ifndef WITHOUT_RULE_3
		asked = (asked < DUE -> asked + 1 : DUE);
#endif
		gone = (moved && switched && gone < DUE -> gone + 1 : gone) }
	od
}

init {
	has[1] = 1; since[1] = LONG;
	if
	:: pause = 0
	:: pause = PAUSE
	fi;
	if
	:: at = 0
	:: at = 1
	fi;
	atomic { run Client(); run Server(); run World() }
}
