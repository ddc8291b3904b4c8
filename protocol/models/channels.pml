/*
 * The channels of workers: L1 opens on a channel only while every worker publishes there.
 *
 * Two workers of one outbox, while a rollout changes the channel: the process with L1 listens to the channel of worker
 * 1, and the map of worker 0 has another one. Each publishes on the channels of both. A worker may begin and stop at any
 * time, and be frozen between any two steps, forever if it was killed. One of them unlinks a key, whose old value L1
 * may hold, and then publishes it. Time goes in ticks of 5 s. The process closes L1 when it has heard no heartbeat for a
 * whole tick, so after the message L1 holds the old value for less than two.
 *
 * Rule 1: a worker sends heartbeats on a channel only while every living worker publishes there
 * Rule 2: it writes its own record before it reads those of the others
 * Rule 3: between an UNLINK and its message it exchanges records if the last exchange is too old
 * Rule 4: it sends no heartbeats if its last exchange is too old
 * Rule 5: if its last exchange is too old, its record does not list the channels of others
 * Rule 6: it publishes on the channels of a worker for longer than that worker counts as living
 */
#define LIVES 1   /* ticks that a worker without a new record counts as living: silentWorker */
#ifndef WITHOUT_RULE_6
#define ADOPTED 3 /* ticks that others publish on its channels: adoptedLife */
#else
#define ADOPTED 0
#endif
#define NONE 4    /* no record */
#define BOUND 2

/* the records in MySQL */
byte age[2] = NONE;
bool lists[2], stopped[2];

/* the workers */
bool over[2];
bool fresh[2], young[2];   /* the last exchange counts; the one that goes on will */
bool exchanging[2];
bool adopted[2], left[2];  /* publishes there for worker 1, which may have gone */
bool blocked[2];           /* knows of a living worker that does not publish there */

/* the key */
bool unlinked, sent;
byte by, to;               /* by: the worker + 1 that unlinks; to: whether its message goes to the channel of L1, + 1 */

/* the process with L1 */
bool opened, old;
byte quiet, held;

#define THERE(w) (w == 1 || adopted[w])
#ifndef WITHOUT_RULE_3
#define MAY_SEND(w) fresh[w]
#else
#define MAY_SEND(w) true
#endif
#ifndef WITHOUT_RULE_1
#define AGREES(w) !blocked[w]
#else
#define AGREES(w) true
#endif
#ifndef WITHOUT_RULE_4
#define MAY_BEAT(w) fresh[w]
#else
#define MAY_BEAT(w) (age[w] != NONE)
#endif

inline write(w) {
	age[w] = 0;
#ifndef WITHOUT_RULE_5
	lists[w] = w == 1 || adopted[w] && !left[w] && fresh[w];
#else
	lists[w] = w == 1 || adopted[w] && !left[w];
#endif
	printf("worker %d writes its record, which lists the channel: %d\n", w, lists[w])
}

#define LIVING(o) (!stopped[o] && age[o] <= LIVES)

inline read(w) {
	adopted[w] = false; left[w] = false;
	if
	:: w != 1 && age[1] <= ADOPTED -> adopted[w] = true; left[w] = !LIVING(1)
	:: else
	fi;
	blocked[w] = w != 0 && LIVING(0) && !lists[0];
	printf("worker %d reads the records: adopts %d, left %d, blocked %d\n", w, adopted[w], left[w], blocked[w])
}

proctype Worker(byte w) {
end:	do
	:: atomic { !over[w] && !exchanging[w] ->
		exchanging[w] = true; young[w] = true;
#ifndef WITHOUT_RULE_2
		write(w)
#else
		read(w)
#endif
		}
	:: atomic { !over[w] && exchanging[w] ->
		exchanging[w] = false;
#ifndef WITHOUT_RULE_2
		read(w);
#else
		write(w);
#endif
		fresh[w] = young[w] }
	:: atomic { !over[w] && !by -> by = w + 1; unlinked = true; printf("worker %d unlinks\n", w) }
	:: atomic { !over[w] && by == w + 1 && !to && MAY_SEND(w) -> to = 1 + THERE(w); printf("worker %d is about to publish there: %d\n", w, to == 2) }
	:: atomic { !over[w] && by == w + 1 && to && !sent ->
		sent = true; printf("worker %d has published\n", w);
		if
		:: to == 2 -> old = false
		:: else
		fi }
	:: atomic { !over[w] && THERE(w) && !left[w] && AGREES(w) && MAY_BEAT(w) -> opened = true; quiet = 0; printf("worker %d sends a heartbeat\n", w) }
	:: atomic { !over[w] && age[w] != NONE && !exchanging[w] && by != w + 1 -> over[w] = true; stopped[w] = true; age[w] = 0; printf("worker %d stops\n", w) }
	od
}

#define OLDER(t) t = (t < NONE -> t + 1 : NONE)

proctype Process() {
end:	do
	:: atomic { opened && !unlinked && !old -> old = true; printf("L1 takes the old value\n") }
	:: atomic { printf("a tick\n");
		OLDER(age[0]); OLDER(age[1]);
		fresh[0] = false; fresh[1] = false; young[0] = false; young[1] = false;
		quiet = (quiet < 2 -> quiet + 1 : 2);
		if
		:: opened && quiet == 2 -> opened = false; old = false; printf("L1 is emptied and closed\n")
		:: else
		fi;
		held = (sent && old -> held + 1 : 0);
		assert(held < BOUND) }
	od
}

init { atomic { run Worker(0); run Worker(1); run Process() } }
