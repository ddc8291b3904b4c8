package store_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// A claim says since when its rows can have been visible: since the last look that left none behind.
func TestUnseen(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := openStore(t, env.DSN)
	s.EveryScanIsQuick()
	all, one := limits, limits
	one.Rows = 1
	next := func(l store.ClaimLimits, from, to time.Time) *store.Claim {
		t.Helper()
		c := claim(t, s, l)
		if c.Unseen.Before(from) || c.Unseen.After(to) {
			t.Errorf("rows were unseen at %v, wanted %v to %v", c.Unseen, from, to)
		}
		return c
	}
	settle := func(c *store.Claim) {
		t.Helper()
		if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows)}); err != nil {
			t.Fatal(err)
		}
	}
	never := time.Time{}
	enqueue(t, env.DB, products(1)...)
	if err := next(all, never, never).Release(); err != nil { // which leaves them behind
		t.Fatal(err)
	}
	before := time.Now()
	c := next(all, never, never)
	after := time.Now()
	enqueue(t, env.DB, products(2)...) // while the claim has them in hand
	settle(c)
	settle(next(one, before, after)) // which leaves one behind
	c = next(one, before, after)
	settle(c)
	before = time.Now()
	if found, err := s.Waiting(t.Context()); found || err != nil {
		t.Fatal(found, err)
	}
	after = time.Now()
	enqueue(t, env.DB, products(1)...)
	settle(next(all, before, after))
	if c.IsDelayed() {
		t.Error("it is of cache_outbox")
	}
}

// When scans are slow the head may have passed rows, so that no look proves anything any more.
func TestUnseenInSlowScans(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	s := slowStore(t, env)
	slow := time.Now()
	for range 2 {
		enqueue(t, env.DB, products(1)...)
		c := soon(t, s)
		if c.Unseen.After(slow) {
			t.Errorf("rows were unseen at %v, scans are slow since %v", c.Unseen, slow)
		}
		if err := c.Settle(t.Context(), store.Settlement{Done: ids(c.Rows)}); err != nil {
			t.Fatal(err)
		}
		nothing(t, s)
	}
}
