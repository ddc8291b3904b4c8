/*
 * The channel: L1 keeps nothing that it cannot hear about. It holds an old value for BOUND periods at most.
 *
 * One process with L1, one commit, two epochs of workers: the second may be another worker or the successor of the first.
 * Time goes in periods without end: in each, every worker that can read MySQL first handles the commit if there is one, then
 * sends a heartbeat. A worker may be killed at any moment, and the first may say goodbye or lose MySQL. Once, either the
 * subscription is cut for any time, or the network swallows up to two messages in a row and nobody is told. A reply that
 * has a value of Redis in it may arrive any time later. A message is heard when it is sent or never. Sequence numbers are
 * not counted: what matters of them is whether something was missed since the last that was heard.
 *
 * Rule 1: a gap in the sequence of an epoch empties and closes L1
 * Rule 2: so does a known epoch that is silent for three periods without a goodbye
 * Rule 3: so does the loss of the subscription
 * Rule 4: so does an epoch that appears in its middle
 * Rule 5: so does an epoch that replaces one of which less was heard than it says
 * Rule 6: L1 opens only after a whole period of listening
 * Rule 7: closing voids what was read before it
 * Rule 8: a worker that cannot read MySQL sends no heartbeat
 * Rule 9: L1 closes after three periods without a heartbeat of any worker, goodbyes or not
 */
#define BOUND 4

#define UNBORN 0
#define ALIVE 1
#define DEAD 2

/* the workers, by epoch; index 0 is not used */
byte life[3];
bool blind[3];             /* cannot read MySQL */
bool carried[3];           /* has sent a message with keys in it */
bool successor;            /* the second epoch replaces the first */
bool committed, unlinked;
byte turn;                 /* in a period: 0 and 1 the first worker's, 2 and 3 the second's, 4 the end */

/* faults */
bool cut, swallow, faulty;
byte swallowed;

/* the process */
bool opened;
bool known[3];             /* the epoch was heard since the process began to listen, and is awaited */
bool missed[3];            /* something of it was not heard since */
bool behind[3];            /* something of it with keys was not heard */
byte silent[3];            /* periods without a message of it */
byte quiet;                /* periods without a heartbeat: a first message or a goodbye proves nothing */
byte listened;             /* ends of periods since it began to listen */
byte l1, reply;            /* reply: what a read on its way back has in it */
bool voided;               /* L1 must not take that */
byte held;                 /* periods that L1 has held an old value */

/* Not modelled: a new epoch of which the network swallows every message until it ends, and that nobody replaces. */
#define HIDDEN (e == 2 && swallowed && missed[e] && !known[e])

inline forget(e) {
	known[e] = false; missed[e] = false; behind[e] = carried[e]; silent[e] = 0
}

inline close() {
	opened = false; l1 = 0; listened = 0; forget(1); forget(2);
#ifndef WITHOUT_RULE_7
	voided = true;
#endif
	printf("L1 is emptied and closed\n")
}

/* send: a message of epoch e, with keys or without, perhaps the first or the last of its epoch. */
inline send(e, keys, first, bye) {
	carried[e] = carried[e] || keys;
	printf("epoch %d sends a message: keys %d, first %d, goodbye %d\n", e, keys, first, bye);
	if
	:: swallow && swallowed < 2 -> swallowed++; missed[e] = true; behind[e] = behind[e] || keys; printf("it is swallowed\n")
	:: cut -> missed[e] = true; behind[e] = behind[e] || keys; printf("it is not heard\n")
	:: else ->
		if
#ifndef WITHOUT_RULE_1
		:: known[e] && missed[e] -> printf("a gap\n"); close()
#endif
#ifndef WITHOUT_RULE_4
		:: opened && !known[e] && !first -> printf("an epoch in its middle\n"); close()
#endif
#ifndef WITHOUT_RULE_5
		:: opened && first && e == 2 && successor && behind[1] -> printf("less was heard of its predecessor\n"); close()
#endif
		:: else
		fi;
		if
		:: first && successor && e == 2 -> forget(1) /* replaced: not awaited */
		:: else
		fi;
		forget(e);
		quiet = (first || bye -> quiet : 0); known[e] = !bye; behind[e] = false;
		if
		:: keys -> l1 = 0; voided = true; printf("L1 evicts\n")
		:: else
		fi
	fi
}

proctype Worker(byte e) {
end:	do
	:: atomic { turn == 2 * (e - 1) ->
		if
		:: life[e] == ALIVE && !blind[e] && committed && !unlinked ->
			unlinked = true; printf("epoch %d unlinks\n", e); send(e, true, false, false)
		:: else
		fi;
		turn++ }
	:: atomic { turn == 2 * (e - 1) + 1 ->
		if
#ifndef WITHOUT_RULE_8
		:: life[e] == ALIVE && !blind[e] -> send(e, false, false, false)
#else
		:: life[e] == ALIVE -> send(e, false, false, false)
#endif
		:: else
		fi;
		turn++ }
	:: atomic { life[e] == UNBORN ->
		life[e] = ALIVE;
		if
		:: life[1] == DEAD -> successor = true
		:: true
		fi;
		printf("epoch %d begins, successor %d\n", e, successor);
		send(e, false, true, false) }
	:: atomic { life[e] == ALIVE && !HIDDEN -> life[e] = DEAD; printf("epoch %d is killed\n", e) }
	:: atomic { e == 1 && life[e] == ALIVE -> life[e] = DEAD; send(e, false, false, true) }
	:: atomic { e == 1 && life[e] == ALIVE && !blind[e] -> blind[e] = true; printf("epoch %d cannot read MySQL\n", e) }
	od
}

proctype Faults() {
end:	do
	:: atomic { !faulty -> faulty = true; cut = true; printf("the subscription is cut\n") }
	:: atomic { !faulty -> faulty = true; swallow = true; printf("the network begins to swallow\n") }
	:: atomic { cut -> cut = false; printf("subscribed again\n");
#ifndef WITHOUT_RULE_3
		close()
#endif
		}
	:: atomic { !committed -> committed = true; printf("commit of 2\n") }
	od
}

proctype Reader() {
end:	do
	:: atomic { opened && !l1 && !reply -> voided = false; reply = (unlinked -> 2 : 1); printf("a caller reads %d from Redis\n", reply) }
	:: atomic { reply ->
		if
		:: opened && !voided -> l1 = reply; printf("L1 takes %d\n", l1)
		:: else -> printf("L1 does not take %d\n", reply)
		fi;
		reply = 0; voided = false }
	od
}

proctype Time() {
end:	do
	:: atomic { turn == 4 ->
		printf("a period ends\n");
		/* the network swallows messages in a row: two periods at most */
		swallow = (swallow && swallowed < 2);
		silent[1] = (silent[1] < 3 -> silent[1] + known[1] : 3);
		silent[2] = (silent[2] < 3 -> silent[2] + known[2] : 3);
		quiet = (quiet < 3 -> quiet + 1 : 3);
		if
#ifndef WITHOUT_RULE_9
		:: opened && quiet == 3 -> printf("no worker is heard\n"); close()
#endif
#ifndef WITHOUT_RULE_2
		:: silent[1] == 3 || silent[2] == 3 -> printf("an epoch is silent\n"); close()
#endif
		:: else
		fi;
		listened = (listened < 2 -> listened + 1 : 2);
		if
#ifndef WITHOUT_RULE_6
		:: !opened && listened == 2 && (known[1] || known[2]) -> opened = true; printf("L1 opens\n")
#else
		:: !opened && (known[1] || known[2]) -> opened = true; printf("L1 opens\n")
#endif
		:: else
		fi;
		held = (committed && l1 == 1 -> held + 1 : 0);
		assert(held <= BOUND);
		turn = 0 }
	od
}

init {
	if /* the process begins to listen before or after the first worker's turn */
	:: turn = 0
	:: turn = 2
	fi;
	atomic { life[1] = ALIVE; run Worker(1); run Worker(2); run Faults(); run Reader(); run Time() }
}
