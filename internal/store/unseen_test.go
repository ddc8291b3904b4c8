package store_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
)

// A claim has the time since when its rows can have been visible: the last poll or claim that left
// no row.
func TestUnseen(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	s.Queue.EveryScanIsQuick()
	all, one := storetest.Limits, storetest.Limits
	one.Rows = 1
	next := func(l store.ClaimLimits, from, to time.Time) *store.Claim {
		t.Helper()
		c := storetest.Claim(t, s, l)
		if c.Unseen.Before(from) || c.Unseen.After(to) {
			t.Errorf("rows were unseen at %v, wanted %v to %v", c.Unseen, from, to)
		}
		return c
	}
	settle := func(c *store.Claim) {
		t.Helper()
		if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows)}); err != nil {
			t.Fatal(err)
		}
	}
	never := time.Time{}
	storetest.Enqueue(t, env.DB, storetest.Products(1)...)
	if err := next(all, never, never).Release(); err != nil { // it leaves them behind
		t.Fatal(err)
	}
	before := time.Now()
	c := next(all, never, never)
	after := time.Now()
	storetest.Enqueue(t, env.DB, storetest.Products(2)...) // while the claim holds them
	settle(c)
	settle(next(one, before, after)) // it leaves one behind
	c = next(one, before, after)
	settle(c)
	before = time.Now()
	if found, err := s.Queue.Waiting(t.Context()); found || err != nil {
		t.Fatal(found, err)
	}
	after = time.Now()
	storetest.Enqueue(t, env.DB, storetest.Products(1)...)
	settle(next(all, before, after))
	if c.IsDelayed() {
		t.Error("rows of cache_outbox count as delayed")
	}
}

// In slow-scan mode the head may have passed rows, so a poll or claim no longer proves that none is
// left.
func TestUnseenInSlowScans(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := slowStore(t, env)
	slow := time.Now()
	for range 2 {
		storetest.Enqueue(t, env.DB, storetest.Products(1)...)
		c := soon(t, s)
		if c.Unseen.After(slow) {
			t.Errorf("rows were unseen at %v, scans are slow since %v", c.Unseen, slow)
		}
		if err := c.Settle(t.Context(), store.Settlement{Done: storetest.IDs(c.Rows)}); err != nil {
			t.Fatal(err)
		}
		nothing(t, s)
	}
}
