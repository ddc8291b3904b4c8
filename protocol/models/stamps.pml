/*
 * Stamps: an entry is good as long as the stamps of its tags are those that stood before it was loaded.
 *
 * Two readers of one key with one tag, one commit that invalidates the tag. The stamp lies in another slot, so no script
 * sees it together with the lease, and the commands of one round trip are executed in either order. The stamp may
 * expire, and the command that makes the first reader's stamp may be executed once more, later.
 *
 * Rule 1: stamps are read or made before the load, not with the fill
 * Rule 2: a stamp other than the entry's is a miss
 * Rule 3: a stamp that is missing is a miss, not a tag that was never invalidated
 * Rule 4: the text of a stamp has TIME in it; the reader's token alone is the same when a late copy makes it again
 */
#define NONE 0
byte db = 1;        /* the row */
byte value, vstamp; /* in Redis: the value, and the stamp stored with it */
byte lease, stamp;  /* in Redis */
byte texts = 2;     /* texts made from TIME; 1 and 2 are the tokens of the readers */
byte gone = 1;      /* a reader that begins now must not get less */
bool late;          /* the network keeps a copy of the first reader's command that makes a stamp */
byte busy;

#if defined(WITHOUT_RULE_2)
#define GOOD(s, e) (s)
#elif defined(WITHOUT_RULE_3)
#define GOOD(s, e) (!(s) || (s) == (e))
#else
#define GOOD(s, e) ((s) && (s) == (e))
#endif

inline stampScript(token) {
	if
#ifndef WITHOUT_RULE_4
	:: stamp == NONE -> texts++; stamp = texts
#else
	:: stamp == NONE -> stamp = token
#endif
	:: else
	fi
}

inline askStamp() {
	atomic {
		stampScript(me);
		tag = stamp;
		late = (me == 1 -> true : late);
		printf("reader %d has stamp %d\n", me, tag)
	}
}

inline askLease() {
	atomic {
		if
		:: lease == NONE -> texts++; lease = texts; mine = lease; printf("reader %d is given lease %d\n", me, mine)
		:: else
		fi
	}
}

proctype Reader(byte me) {
	byte floor, mine, tag, got, entry;

	atomic { floor = gone; printf("reader %d begins, %d or newer is right\n", me, floor) }
	if
	:: atomic { got = value; entry = vstamp }
	   atomic { tag = stamp }
	:: atomic { tag = stamp }
	   atomic { got = value; entry = vstamp }
	fi;
	if
	:: got && GOOD(tag, entry) -> printf("reader %d: Redis has %d with stamp %d, and the tag has %d\n", me, got, entry, tag); goto answer
	:: else -> printf("reader %d: a miss\n", me)
	fi;
#ifndef WITHOUT_RULE_1
	if
	:: true -> askLease(); askStamp()
	:: true -> askStamp(); askLease()
	fi;
	atomic { got = db; printf("reader %d reads row %d\n", me, got) }
#else
	askLease();
	atomic { got = db; printf("reader %d reads row %d\n", me, got) }
	askStamp();
#endif
	if
	:: mine == NONE
	:: mine ->
		atomic {
			if
			:: lease == mine -> lease = NONE; value = got; vstamp = tag; printf("reader %d fills %d with stamp %d\n", me, got, tag)
			:: else -> printf("reader %d: fill of %d is refused\n", me, got)
			fi
		}
	fi;
answer:
	atomic { printf("reader %d answers %d\n", me, got); assert(got >= floor) }
	busy--
}

proctype Worker() {
	atomic { db = 2; printf("commit of 2\n") }
	atomic { stamp = NONE; printf("worker unlinks the stamp\n") }
	atomic { gone = 2; printf("the invalidation is complete\n") }
	busy--
}

proctype Network() {
end:	do
	:: atomic { stamp -> stamp = NONE; printf("the stamp expires\n") }
	:: atomic { late -> late = false; stampScript(1); printf("a late copy: the stamp is %d\n", stamp) }
	od
}

init {
	atomic { busy = 3; run Reader(1); run Reader(2); run Worker(); run Network() }
	atomic {
		busy == 0;
		assert(!(value == 1 && GOOD(stamp, vstamp))) /* nothing old is left that a reader would take */
	}
}
