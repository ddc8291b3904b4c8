/*
 * Read your writes: who shows a token reads at least the row of the write that the token names.
 *
 * A writer commits a row together with its invalidation and is given a token; then it calls, in another process with L1,
 * with the token. A caller without a token is at work in that process all along. The checker says whether the token's
 * invalidation waits; it is settled after the worker published, and the message arrives later.
 *
 * Rule 1: until the token is settled the fetch goes past Redis and L1
 * Rule 2: until it is settled the fetch joins no flight that began before
 * Rule 3: the token is used after the commit only: before it the checker sees no row, and that looks settled
 * Rule 4: a fetch with a token goes past L1 when the token is settled too, for settled is not delivered
 */
byte db = 1;    /* the row: 1 is the old one, 2 the new one */
byte value = 1; /* in Redis */
byte lease;     /* its text in Redis */
byte texts;     /* how many texts were made */
byte l1;        /* in the process */
byte evictions; /* from L1 */
bool row;       /* the invalidation waits in MySQL */
bool given;     /* the writer has its token */
bool published;
bool open;      /* the flight of the caller without a token takes joiners */
byte result;    /* of that flight, for joiners; 0 for none */
bool over;      /* that flight has ended */
byte busy;

proctype Caller() {
	byte mine, mark, got;
	bool accepted;

	atomic {
		if
		:: l1 -> got = l1; goto end
		:: else -> open = true; mark = evictions; printf("a caller without a token leads a flight\n")
		fi
	}
	atomic {
		if
		:: value -> got = value; printf("it reads %d from Redis\n", got); accepted = true; open = false; goto take
		:: else -> lease = 1; texts++; mine = 1
		fi
	}
	atomic { got = db; printf("it reads row %d\n", got) }
	open = false;
	atomic {
		if
		:: lease == mine -> lease = 0; value = got; accepted = true; printf("Redis stores %d\n", got)
		:: else -> printf("Redis refuses %d\n", got)
		fi
	}
take:
	atomic {
		if
		:: accepted && mark == evictions -> l1 = got; printf("L1 takes %d\n", got)
		:: else
		fi;
		result = (accepted && mine -> got : 0);
		over = true
	}
end:
	busy--
}

proctype Writer() {
#ifdef WITHOUT_RULE_3
	given = true;
#endif
	atomic { db = 2; row = true; given = true; printf("commit of 2, with its invalidation\n") }
	busy--
}

proctype Reader() {
	byte floor, got;
	bool settled;

	atomic { given; settled = !row; printf("the checker is asked: settled %d\n", settled) }
	atomic { floor = db; printf("a caller with the token begins, %d or newer is right\n", floor) }
	if
#ifndef WITHOUT_RULE_1
	:: !settled -> goto look
#endif
	:: else
	fi;
#ifndef WITHOUT_RULE_4
	if
	:: settled -> goto redis
	:: else
	fi;
#endif
	atomic {
		if
		:: l1 -> got = l1; printf("it reads %d from L1\n", got); goto answer
		:: else
		fi
	}
redis:
	atomic {
		if
		:: value -> got = value; printf("it reads %d from Redis\n", got); goto answer
		:: else
		fi
	}
look:
	atomic {
		if
#ifdef WITHOUT_RULE_2
		:: open -> printf("it joins the flight\n")
#else
		:: open && settled -> printf("it joins the flight\n")
#endif
		:: else -> goto load
		fi
	}
	atomic { over; got = result }
	if
	:: got -> goto answer
	:: else
	fi;
load:
	atomic { got = db; printf("it reads row %d\n", got) }
answer:
	atomic { printf("it answers %d\n", got); assert(got >= floor) }
	busy--
}

proctype Worker() {
	atomic { row; lease = 0; value = 0; printf("worker unlinks\n") }
	atomic { published = true; printf("worker publishes\n") }
	atomic { row = false; printf("the invalidation is settled\n") }
	busy--
}

proctype Subscriber() {
	atomic { published; evictions++; l1 = 0; printf("the message is delivered, L1 evicts\n") }
	busy--
}

proctype Clock() {
end:	do
	:: atomic { value -> value = 0; printf("the value expires\n") }
	od
}

init {
	atomic { busy = 5; run Caller(); run Writer(); run Reader(); run Worker(); run Subscriber(); run Clock() }
	atomic { busy == 0; assert(value != 1 && l1 != 1) }
}
