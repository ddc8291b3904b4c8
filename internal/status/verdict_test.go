package status_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
)

var at = time.Date(2026, 3, 2, 14, 6, 11, 0, time.UTC)

// working returns a Status with a working worker.
func working(change func(*store.Status)) store.Status {
	ago := time.Second
	s := store.Status{Staleness: store.Staleness{At: at, Workers: []store.WorkerNote{{Name: "web-1", State: store.WorkerWorking, Drained: &ago}}}}
	change(&s)
	return s
}

// The exact texts. The tests of `unstale status` on real servers match only parts of them.
func TestWords(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*store.Status){
		"nothing is stale: all rows that were committed by 14:06:11 UTC are unlinked": func(*store.Status) {},
		"nothing is stale: all rows up to 12 ms ago are unlinked":                     func(s *store.Status) { s.Waiting, s.OldestAge = 1, 12*time.Millisecond },
		"STALE since 2026-03-01 14:06:11 UTC (24 h): more than 10000 rows wait, and workers are behind; wait, or start more workers: docs/operations.md#what-waits": func(s *store.Status) {
			s.Waiting, s.OldestAge = store.MaxExactCount+1, 24*time.Hour
		},
		"unknown since 14:05:57 UTC (14 s): no worker has been heard for 14 s, the last was web-1; nothing waits, but nobody looks whether Redis has lost anything; if none runs, start one: unstale run; --redis-url also shows workers whose status MySQL refuses": func(s *store.Status) {
			s.Workers[0].Silent = 14 * time.Second
		},
		"STALE since 14:06:01 UTC (10 s): 5 rows wait, and workers are behind; wait: docs/operations.md#what-waits": func(s *store.Status) {
			s.Waiting, s.OldestAge = 5, 10*time.Second
		},
		"unknown since 14:06:08 UTC (3 s): no worker works at the moment, web-1 is starting; nothing waits, but nobody looks whether Redis has lost anything; wait a moment": func(s *store.Status) {
			s.Workers[0].State, s.Workers[0].For = store.WorkerStarting, 3*time.Second
		},
		"unknown: worker web-1: part of redis is away: 10.0.0.1:6379; docs/operations.md#outages": func(s *store.Status) {
			s.Workers[0].Error = "part of redis is away: 10.0.0.1:6379"
		},
		"unknown: table cache_outbox has no ID left, so every insert into it fails (1467), and the write that the row belongs to fails with it; docs/operations.md#ids-that-run-out": func(s *store.Status) {
			// which is less urgent
			s.IDsLeft, s.Pause = map[string]uint64{"cache_outbox": 0}, &store.Pause{Who: "anna"}
		},
		"STALE since 14:03:11 UTC (3 min): 3 dead letters (redis_refused: 1, unknown_entity: 2), whose keys may be stale; see: unstale dead list": func(s *store.Status) {
			s.Dead, s.DeadFor = map[string]int{"unknown_entity": 2, "redis_refused": 1}, 3*time.Minute
		},
		"STALE since 14:03:11 UTC (3 min): 1 dead letter (lookup_failed: 1), whose keys may be stale; where a lookup failed, the dead letter says what was applied without it; see: unstale dead list": func(s *store.Status) {
			s.Dead, s.DeadFor = map[string]int{"lookup_failed": 1}, 3*time.Minute
		},
		"STALE since 14:03:11 UTC (3 min): tried again after a failure (lookup_failed): 2 rows, syntax near 'x; where a lookup failed, the error of each row says what was applied without it; see: unstale delayed list --reason lookup_failed": func(s *store.Status) {
			s.Failing = []store.FailingRows{{Reason: "lookup_failed", N: 2, Age: 3 * time.Minute, Error: "syntax near 'x\ny'" + store.PartMark + "keys 1"}}
		},
	} {
		if got := status.Judge(working(change), nil).String(); got != want {
			t.Errorf("%s\nwanted %s", got, want)
		}
	}
}

// Stale entries that are gone are a note.
func TestStaleEntries(t *testing.T) {
	t.Parallel()
	for want, n := range map[string]store.StaleCount{
		"": {Day: 3},
		"note: spot checks found 1 stale entry within an hour, which is gone; find what stores them: docs/operations.md#a-stale-entry": {Hour: 1, Day: 3},
	} {
		v := status.Judge(working(func(s *store.Status) { s.StaleEntries = n }), nil)
		if got := strings.Join(v.Others(), "\n"); v.Level != status.Fresh || got != want {
			t.Errorf("%s: %q, wanted %q", v, got, want)
		}
	}
	v := status.Judge(working(func(s *store.Status) { s.StaleEntriesError = errors.New("SELECT command denied") }), nil)
	if got := strings.Join(v.Others(), "\n"); v.Level != status.Fresh || !strings.Contains(got, "cannot be read: SELECT command denied") {
		t.Errorf("%s: %q", v, got)
	}
}

// Few remaining IDs are a note, until none is left.
func TestFewIDs(t *testing.T) {
	t.Parallel()
	for left, want := range map[uint64]string{
		store.FewIDs:     "",
		store.FewIDs - 1: "note: an insert into table cache_outbox_delayed has chosen a high ID: 9223372036854775807 are left, and then every insert fails; docs/operations.md#ids-that-run-out",
	} {
		v := status.Judge(working(func(s *store.Status) { s.IDsLeft = map[string]uint64{"cache_outbox_delayed": left} }), nil)
		if got := strings.Join(v.Others(), "\n"); v.Level != status.Fresh || got != want {
			t.Errorf("%s: %q, wanted %q", v, got, want)
		}
	}
}

// A row that is old in one look may have been committed just now. In two looks, with a worker that
// has found no more rows to claim, it is locked. The more severe cause comes first, and lines for
// the others follow.
func TestTwoLooks(t *testing.T) {
	t.Parallel()
	s := working(func(s *store.Status) {
		s.Waiting, s.OldestAge, s.First, s.Damaged = 1, time.Minute, &store.WaitingRow{ID: 7, Entity: "product"}, 1
	})
	if !status.Doubtful(s) {
		t.Error("one look is enough")
	}
	for before, want := range map[*store.Status]string{nil: "workers are behind", {First: &store.WaitingRow{ID: 6}}: "workers are behind", &s: "row 7 (product) waits, and workers pass it over"} {
		v := status.Judge(s, before)
		if v.Level != status.Stale || !strings.Contains(v.String(), want) || len(v.Others()) != 1 || !strings.HasPrefix(v.Others()[0], "unknown too: ") {
			t.Errorf("%s\n%s", v, v.Others())
		}
	}
}

// A map that the next release refuses is one note, and does not count as stale.
func TestDeprecatedMap(t *testing.T) {
	t.Parallel()
	v := status.Judge(working(func(s *store.Status) {
		s.Workers[0].MapWarning = "m.yaml:3:5: \"LIMIT\": counts\nmore"
		s.Workers = append(s.Workers, s.Workers[0])
	}), nil)
	if v.Level != status.Fresh || strings.Join(v.Others(), "|") != `note: worker web-1 uses a map that the next release refuses: m.yaml:3:5: "LIMIT": counts; unstale map check` {
		t.Errorf("%s\n%s", v, v.Others())
	}
}

// The same holds for the first delayed row that is due.
func TestTwoLooksAtDelayedRows(t *testing.T) {
	t.Parallel()
	due := func(id uint64) store.Status {
		return working(func(s *store.Status) {
			s.Delayed, s.Overdue, s.FirstDue = 2, time.Minute, &store.WaitingRow{ID: id, Entity: "coupon", Age: time.Minute}
		})
	}
	other, s := due(6), due(7)
	if !status.Doubtful(s) {
		t.Error("one look is enough")
	}
	for before, want := range map[*store.Status]string{
		nil:    "STALE since 14:05:11 UTC (60 s): delayed rows that are due wait, and workers are behind; ",
		&other: "STALE since 14:05:11 UTC (60 s): delayed rows that are due wait, and workers are behind; ",
		&s:     "STALE since 14:05:11 UTC (60 s): delayed row 7 (coupon) is due, and workers pass it over: a session has it locked",
	} {
		if v := status.Judge(s, before); !strings.HasPrefix(v.String(), want) || len(v.Causes) != 1 {
			t.Errorf("%s\n%s", v, v.Others())
		}
	}
}

// With a created_at in the future, how long the row waits is unknown until two looks show it.
func TestRowAhead(t *testing.T) {
	t.Parallel()
	first := &store.WaitingRow{ID: 7, Entity: "coupon", Age: -time.Hour}
	look := func(after time.Duration, change func(*store.Status)) store.Status {
		return working(func(s *store.Status) {
			s.At, s.Waiting, s.First, s.Ahead = at.Add(after), 2, first, first
			change(s)
		})
	}
	behind := func(s *store.Status) { ago := time.Minute; s.Workers[0].Drained = &ago }
	as := func(*store.Status) {}
	start := look(0, as)
	if !status.Doubtful(start) {
		t.Error("one look is enough")
	}
	for want, of := range map[string]status.Verdict{
		"unknown: the created_at of row 7 (coupon) lies 60 min ahead of the database's clock, so how long rows wait is unknown; insert rows without created_at; unstale doctor --check clocks": status.Judge(start, nil),
		"STALE since 14:06:11 UTC (1 s): row 7 (coupon) waits, and workers pass it over: ":                                                                                                     status.Judge(look(time.Second, as), &start),
		"STALE since 14:06:11 UTC (9 s): 2 rows wait, and workers are behind; ":                                                                                                                status.Judge(look(9*time.Second, behind), &start),
		"STALE since 13:06:11 UTC (60 min): 2 rows wait, and workers are behind; ":                                                                                                             status.Judge(look(0, func(s *store.Status) { s.OldestAge = time.Hour }), nil),
		"STALE: no worker has been heard since the database's clock was set back, the last was web-1; 2 rows wait; ":                                                                           status.Judge(look(0, func(s *store.Status) { s.Workers[0].Silent = -time.Hour }), nil),
	} {
		if !strings.HasPrefix(of.String(), want) {
			t.Errorf("%s\nwanted %s", of, want)
		}
	}
	second := look(time.Second, as)
	if status.First(&start, second) != &start || status.First(&start, working(as)).First != nil || status.First(nil, second).First != first {
		t.Error("not the first look that showed the row")
	}
	if v := status.Judge(working(func(s *store.Status) { s.Sweeps, s.Unswept = 1, true }), nil); v.Level != status.Unknown || !strings.Contains(v.String(), "clock was set back") {
		t.Errorf("a sweep that was requested later than now: %s", v)
	}
	// An application's clock that is half a second fast.
	near := &store.WaitingRow{ID: 8, Age: -time.Second / 2}
	if v := status.Judge(working(func(s *store.Status) { s.Waiting, s.First, s.Ahead = 1, near, near }), &start); v.String() != "nothing is stale: all rows up to 1 s ago are unlinked" {
		t.Error(v)
	}
}

// A worker whose COMMIT hangs is named, and no other session is blamed for its rows. A read-only
// MySQL is named regardless of the workers' last records.
func TestMySQLCannotBeWritten(t *testing.T) {
	t.Parallel()
	hung := store.WorkerNote{Name: "web-2", State: session.StateHung, Error: "a COMMIT has not returned since 14:05:11 UTC; free space", For: time.Minute}
	waits := func(s *store.Status) {
		s.Waiting, s.OldestAge, s.First = 3, 2*time.Minute, &store.WaitingRow{ID: 7, Entity: "product"}
	}
	for want, change := range map[string]func(*store.Status){
		"STALE since 14:04:11 UTC (2 min): worker web-2 is kept from working (mysql hung): a COMMIT has not returned since 14:05:11 UTC; free space; 3 rows wait; ": func(s *store.Status) {
			s.Workers = []store.WorkerNote{hung}
		},
		"STALE since 14:04:11 UTC (2 min): row 7 (product) waits, and workers pass it over: worker web-2 has it locked, whose COMMIT does not return: a COMMIT has not": func(s *store.Status) {
			s.Workers = append(s.Workers, hung)
		},
		"STALE since 14:04:11 UTC (2 min): row 7 (product) waits, and workers pass it over: worker web-2 may have it locked, which is kept from working: commit: Error 1205; do not end its transaction; ": func(s *store.Status) {
			s.Workers = append(s.Workers, store.WorkerNote{Name: "web-2", State: session.StateAway, Error: "commit: Error 1205"})
		},
		"STALE since 14:04:11 UTC (2 min): MySQL is read-only, so workers cannot settle what they unlink; 3 rows wait; find out which server is the primary; if it is this one: SET GLOBAL read_only = 0; if not, leave it read-only": func(s *store.Status) {
			s.ReadOnly = true
		},
	} {
		s := working(func(s *store.Status) { waits(s); change(s) })
		if v := status.Judge(s, &s); !strings.HasPrefix(v.String(), want) {
			t.Errorf("%s\nwanted %s", v, want)
		}
	}
	if v := status.Judge(working(func(s *store.Status) { s.ReadOnly = true }), nil); v.Level != status.Fresh {
		t.Errorf("of a replica: %s", v)
	}
}

// A worker's report about rows that make no progress decides. A locked row is named even behind a
// backlog, and heavy rows that wait are not reported as locked.
func TestWhatAWorkerHasFound(t *testing.T) {
	t.Parallel()
	old := func(s *store.Status) {
		s.Waiting, s.OldestAge, s.First = 500, time.Minute, &store.WaitingRow{ID: 7, Entity: "product"}
	}
	held := func(s *store.Status) {
		s.Workers[0].Stalled = store.StalledHeld
		s.Workers[0].StallError = "row 7 of cache_outbox has waited for 1m0s, and another session has it locked; end its transaction: docs/operations.md#a-row-is-held"
	}
	heavy := func(s *store.Status) { lasts := 20 * time.Second; s.Workers[0].Heavy = &lasts }
	saturated := func(s *store.Status) { s.Workers[0].Drained = nil }
	for want, changes := range map[string][]func(*store.Status){
		"STALE since 14:05:11 UTC (60 s): worker web-1 reports: row 7 of cache_outbox has waited for 1m0s, and another session has it locked; end that transaction, which ": {held, saturated},
		"STALE since 14:05:11 UTC (60 s): row 7 (product) waits, and workers pass it over: a session has it locked":                                                         {held, heavy},
		"STALE since 14:05:11 UTC (60 s): 500 rows wait, and worker web-1 processes heavy rows, a batch at a time; wait: docs/operations.md#what-waits":                     {heavy},
		"STALE since 14:05:11 UTC (60 s): 500 rows wait, and workers are behind; ":                                                                                          {saturated},
	} {
		s := working(func(s *store.Status) {
			for _, change := range append(changes, old) {
				change(s)
			}
		})
		if v := status.Judge(s, &s); !strings.HasPrefix(v.String(), want) || len(v.Causes) != 1 {
			t.Errorf("%s\nwanted %s\n%s", v, want, v.Others())
		}
	}
	if v := status.Judge(working(held), nil); v.Level != status.Fresh {
		t.Errorf("nothing waits any more: %s", v)
	}
}

// An entry that a check found is stale while Redis has it. Otherwise it is a note, or unknown if Redis
// cannot be read.
func TestOldEntries(t *testing.T) {
	t.Parallel()
	entries := func(n int, of ...store.EntryState) (list []store.OldEntry) {
		for i, p := range of {
			list = append(list, store.OldEntry{Key: fmt.Sprint("shop:product:", i), At: at.Add(-time.Duration(i+1) * time.Minute), Count: n, State: p})
		}
		return list
	}
	differs, survived := "; unstale map who KEY; docs/operations.md#differences", "; find what stores them: docs/operations.md#a-stale-entry"
	for want, change := range map[string]func(*store.Status){
		"note: 3 cached values differed from the database in the last 24 hours, the last: shop:product:0" + differs: func(s *store.Status) {
			s.Differences = entries(3, store.Gone, store.Unread)
		},
		"": func(s *store.Status) { s.Differences = entries(0, store.Gone) },
		"(60 s): the cached value of shop:product:0 differs from the database, and no row explains it" + differs: func(s *store.Status) {
			s.Differences = entries(0, store.Present)
		},
		"(3 min): the cached value of shop:product:2 differs from the database, and no row explains it, and 1 other too" + differs: func(s *store.Status) {
			s.Differences = entries(3, store.Gone, store.Present, store.Present)
		},
		"unknown since 14:05:11 UTC (60 s): whether Redis still has": func(s *store.Status) {
			s.Differences, s.OldEntriesError = entries(3, store.Unread), errors.New("refused")
		},
		"note: cached values that differ from the database cannot be read: refused; docs/accounts.md": func(s *store.Status) { s.OldEntriesError = errors.New("refused") },
		"(60 s): the entry of \"a\\n\" survived an UNLINK and is still in Redis" + survived: func(s *store.Status) {
			s.Left = entries(0, store.Present, store.Gone)
			s.Left[0].Key = "a\n"
		},
		"(2 min): the entry of shop:product:1 survived an UNLINK and may be in Redis until its TTL ends, and 1 other too" + survived: func(s *store.Status) {
			s.Left = entries(0, store.Unread, store.Unread)
		},
		"note: spot checks found 2 stale entries within an hour, which are gone" + survived: func(s *store.Status) { s.Left, s.StaleEntries.Hour = entries(0, store.Gone), 2 },
	} {
		v := status.Judge(working(change), nil)
		got := strings.Join(append(v.Others(), v.String()), "\n")
		if !strings.Contains(got, want) || strings.HasPrefix(want, "(") != (v.Level == status.Stale) {
			t.Errorf("%s\nwanted %s", got, want)
		}
	}
}

// A worker that does not count or check is a note: its rows are unlinked.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		store.NotCounted + "INSERT command denied": "note: worker web-1: invalidations are not counted: INSERT command denied; GRANT SELECT, INSERT, UPDATE, DELETE ON cache_outbox_minutes to the worker's account; docs/accounts.md lists the grants",
		store.NotChecked + "refused":               "note: worker web-1: spot checks are limited: refused; give the worker's user the rules that unstale acl worker prints: docs/accounts.md#redis",
	} {
		v := status.Judge(working(func(s *store.Status) { s.Workers[0].Error = text }), nil)
		if got := strings.Join(v.Others(), "\n"); v.Level != status.Fresh || got != want {
			t.Errorf("%s: %q", v, got)
		}
	}
}
