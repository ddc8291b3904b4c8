package store_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// What a process sees in a minute is written as totals, so a repeated or late write is harmless. A
// failed write is repeated.
func TestSeen(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	a, b := storetest.Open(t, env.DSN), storetest.Open(t, env.DSN)
	now := clock(t, env.DB).Truncate(time.Minute)
	seen, other := store.NewSeen(a.Minutes), store.NewSeen(b.Minutes)
	write := func(s *store.Seen) {
		t.Helper()
		if err := s.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	batch := func(entities ...string) store.Entities {
		e := store.Entities{}
		for i, name := range entities {
			e.Add(name, time.Duration(i)*time.Second) // the third one and later are late
		}
		return e
	}
	seen.Settle(now, batch("x", "y", "x", "x"))
	write(seen)
	seen.Look(now, 5, 9*time.Second)
	seen.Look(now, 7, time.Second)
	seen.Settle(now, batch("x"))
	seen.Settle(now.Add(-time.Minute), batch("z"))
	if _, err := env.DB.Exec("RENAME TABLE cache_outbox_minutes TO hidden"); err != nil {
		t.Fatal(err)
	}
	if seen.Write(t.Context()) == nil {
		t.Error("it is written without the table")
	}
	if _, err := env.DB.Exec("RENAME TABLE hidden TO cache_outbox_minutes"); err != nil {
		t.Fatal(err)
	}
	write(seen)
	write(seen)
	other.Look(now, 6, 10*time.Second)
	other.Settle(now, batch("y"))
	write(other)
	points, err := store.Series(t.Context(), a.Sessions, 10, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		want := store.Point{At: p.At, Entities: store.Entities{}}
		switch {
		case p.At.Equal(now):
			want.Looked, want.Waiting, want.Oldest = true, 7, 10*time.Second
			want.Entities = store.Entities{"x": {Rows: 4, Within1s: 2}, "y": {Rows: 2, Within1s: 2}}
		case p.At.Equal(now.Add(-time.Minute)):
			want.Entities = store.Entities{"z": {Rows: 1, Within1s: 1}}
		}
		if !reflect.DeepEqual(p, want) {
			t.Errorf("%+v, wanted %+v", p, want)
		}
	}
}

// A minute has at most 50 entities by name, those with the most rows.
func TestSeenIsBounded(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	now := clock(t, env.DB)
	seen, e := store.NewSeen(s.Minutes), store.Entities{}
	for i := range 2000 {
		for range 1 + i%2 {
			e.Add(fmt.Sprintf("%064d", i), 0)
		}
	}
	seen.Settle(now, e)
	if err := seen.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	points, err := store.Series(t.Context(), s.Sessions, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	sum := store.Entities{}
	for _, p := range points {
		sum.Merge(p.Entities)
	}
	if got := sum[fmt.Sprintf("%064d", 1)]; len(sum) != store.MaxEntities+1 || got.Rows != 2 || sum[""].Rows != 3000-100 {
		t.Errorf("%d entities, %d others, %+v", len(sum), sum[""].Rows, got)
	}
}
