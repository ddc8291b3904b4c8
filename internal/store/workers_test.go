package store_test

import (
	"cmp"
	"strconv"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// A status record replaces the previous one. Its ages are by the database's clock. Records older
// than a day are deleted.
func TestNotesOfWorkers(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	note := func(n store.WorkerNote) {
		t.Helper()
		n.MapVersion, n.Channel, n.Format = "v1", "c", "event"
		if err := s.Workers.NoteWorker(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	ago := 3 * time.Second
	note(store.WorkerNote{ID: "A", State: "redis network", Error: "EOF", For: time.Hour})
	note(store.WorkerNote{ID: "A", State: store.WorkerWorking, For: time.Minute, Drained: &ago, MapWarning: "m.yaml:1:1: fault"})
	note(store.WorkerNote{ID: "B", State: store.WorkerStopped})
	note(store.WorkerNote{ID: "C", State: store.WorkerWorking})
	if _, err := env.DB.Exec("UPDATE cache_outbox_workers SET seen_at = seen_at - INTERVAL 25 HOUR WHERE id = 'C'"); err != nil {
		t.Fatal(err)
	}
	list, err := s.Workers.Workers(t.Context())
	if err != nil || len(list) != 3 || list[0].ID != "B" || list[0].Lives() || list[2].ID != "C" || list[2].Lives() {
		t.Fatalf("%+v, %v", list, err)
	}
	a := list[1]
	if !a.Works() || a.Error != "" || a.For < time.Minute || a.For > 2*time.Minute || a.Drained == nil || *a.Drained < ago || a.Silent > time.Minute || a.Name != "test" || a.Channel != "c" || a.MapWarning != "m.yaml:1:1: fault" || list[0].MapWarning != "" {
		t.Errorf("%+v", a)
	}
	for _, c := range []struct {
		announced time.Duration
		left      int
	}{{time.Hour, 3}, {62 * time.Minute, 2}} { // C may have had a lease of an hour
		note(store.WorkerNote{ID: "A", State: store.WorkerWorking, Announced: c.announced})
		if err := s.Workers.ForgetWorkers(t.Context()); err != nil {
			t.Fatal(err)
		}
		if list, err = s.Workers.Workers(t.Context()); err != nil || len(list) != c.left {
			t.Errorf("a worker that announced its lease %v ago: %+v, %v", c.announced, list, err)
		}
	}
}

// A longer lease counts until another worker has announced its own for as long, by the database's
// clock, whenever the worker with the longer one has stopped.
func TestLongestLease(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	const sec, hour = time.Second, time.Hour
	// a record: when it was written, the lease, and since when the worker has announced it
	type record struct {
		seen, lease, announced time.Duration // lease 0, announced 0: NULL
		m                      string
	}
	for name, c := range map[string]struct {
		records []record
		want    time.Duration // of a worker with 1 s
	}{
		"no record":                        {nil, sec},
		"a shorter one":                    {[]record{{seen: 1, lease: sec / 2, announced: hour}}, sec},
		"a restart":                        {[]record{{seen: hour, lease: 10 * sec, announced: 2 * hour}, {seen: sec, lease: sec, announced: 10 * sec}}, 10 * sec},
		"a restart, later":                 {[]record{{seen: hour, lease: 10 * sec, announced: 2 * hour}, {seen: sec, lease: sec, announced: 20 * sec}}, sec},
		"a restart without Redis":          {[]record{{seen: hour, lease: 10 * sec, announced: 2 * hour}, {seen: sec, lease: sec}}, 10 * sec},
		"two restarts":                     {[]record{{seen: 2 * hour, lease: 10 * sec, announced: 3 * hour}, {seen: hour, lease: sec, announced: hour + 3*sec}, {seen: sec, lease: sec}}, 10 * sec},
		"two restarts, the first long ago": {[]record{{seen: 2 * hour, lease: 10 * sec, announced: 3 * hour}, {seen: hour, lease: sec, announced: hour + 20*sec}, {seen: sec, lease: sec}}, sec},
		"side by side":                     {[]record{{seen: 2 * sec, lease: 10 * sec, announced: hour}, {seen: sec, lease: sec, announced: hour}}, 10 * sec},
		"three leases":                     {[]record{{seen: 20 * sec, lease: 10 * sec, announced: hour}, {seen: 2 * sec, lease: 5 * sec, announced: hour}, {seen: sec, lease: sec, announced: hour}}, 5 * sec},
		"killed":                           {[]record{{seen: 10 * sec, lease: 10 * sec, announced: hour}, {seen: sec, lease: sec, announced: hour}}, 10 * sec},
		"lease: 1h":                        {[]record{{seen: 90 * 60 * sec, lease: hour, announced: 2 * hour}, {seen: sec, lease: sec, announced: 50 * 60 * sec}}, hour},
		"lease: 1h, later":                 {[]record{{seen: 90 * 60 * sec, lease: hour, announced: 2 * hour}, {seen: sec, lease: sec, announced: 62 * 60 * sec}}, sec},
		"an earlier release":               {[]record{{seen: sec}, {seen: sec, lease: sec, announced: hour}}, 10 * sec},
		"an earlier release, later":        {[]record{{seen: 20 * sec}, {seen: sec, lease: sec, announced: hour}}, sec},
		"an earlier release, known map":    {[]record{{seen: sec, m: "same"}, {seen: sec, lease: 3 * sec, m: "same", announced: hour}}, 3 * sec},
		"the clock was set back":           {[]record{{seen: -hour, lease: 10 * sec, announced: sec}, {seen: sec, lease: sec, announced: hour}}, 10 * sec},
	} {
		if _, err := env.DB.Exec("DELETE FROM cache_outbox_workers"); err != nil {
			t.Fatal(err)
		}
		for i, r := range c.records {
			_, err := env.DB.Exec(`INSERT INTO cache_outbox_workers (id, name, state, since, seen_at, map_version, channel, format, lease_ms, announced_at)
VALUES (?, 'w', 'working', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?, 'c', 'event', NULLIF(?, 0), UTC_TIMESTAMP(6) - INTERVAL NULLIF(?, 0) MICROSECOND)`,
				i, r.seen.Microseconds(), cmp.Or(r.m, strconv.Itoa(i)), r.lease.Milliseconds(), r.announced.Microseconds())
			if err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.Workers.LongestLease(t.Context(), sec); err != nil || got != c.want {
			t.Errorf("%s: %v, %v, wanted %v", name, got, err, c.want)
		}
	}
	if _, err := env.DB.Exec("RENAME TABLE cache_outbox_workers TO hidden"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Workers.LongestLease(t.Context(), sec); err != nil || got != 10*sec {
		t.Errorf("without records: %v, %v", got, err)
	}
}
