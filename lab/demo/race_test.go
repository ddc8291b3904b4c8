package demo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/lab/demo"
)

// checkReaders checks that naive readers keep the old price of the arranged race, and that readers
// of package cache keep no old price. The number that naive readers keep after the load is left to
// chance.
func checkReaders(t *testing.T, r *demo.Report) {
	t.Helper()
	if len(r.Readers) != 2 {
		t.Fatalf("readers: %+v", r.Readers)
	}
	naive, ours := r.Readers[0], r.Readers[1]
	for _, one := range r.Readers {
		if a := one.Arranged; a.Product != 1001 || a.ReaderCents != 4990 || a.MySQLCents != 4490 {
			t.Errorf("%s: %+v", one.Name, a)
		}
		if one.Changes != 240 || one.Loads == 0 || one.Reads < one.Loads {
			t.Errorf("%s: %d changes, %d loads, %d reads", one.Name, one.Changes, one.Loads, one.Reads)
		}
	}
	if a := naive.Arranged; a.RedisCents == nil || *a.RedisCents != 4990 || a.NextCents != 4990 || a.RedisSeconds < 600 || a.Refused {
		t.Errorf("naive: %+v", a)
	}
	if a := ours.Arranged; a.RedisCents != nil || a.NextCents != 4490 || !a.Refused || len(ours.Old) > 0 {
		t.Errorf("package cache: %+v, %+v", a, ours.Old)
	}
	if f := r.Forgotten; f == nil {
		t.Error("no row was forgotten")
	} else if o := f.Without; o.MySQLCents != 5990 || o.RedisCents == nil || *o.RedisCents != 4990 || o.NextCents != 4990 || o.RedisSeconds < 200 {
		t.Errorf("forgotten, without triggers: %+v", o)
	} else if o := f.With; o.MySQLCents != 3990 || o.RedisCents != nil || o.NextCents != 3990 {
		t.Errorf("forgotten, with triggers: %+v", o)
	}
	var tills []string
	for _, one := range r.Tills {
		tills = append(tills, fmt.Sprintf("%s: %s, %s, %d", one.Name, one.First, one.Second, one.Redemptions))
	}
	if want := []string{"lock alone: redeemed, redeemed, 2", "lock, and held.InTx: refused, redeemed, 1"}; !slices.Equal(tills, want) {
		t.Errorf("tills: %q, wanted %q", tills, want)
	}
	for _, o := range naive.Old {
		if o.Product <= 1001 || o.Product > 1041 || o.MySQLCents >= o.RedisCents || o.RedisSeconds < 600 {
			t.Errorf("naive: %+v", o)
		}
	}
}

// With a map that does not unlink the readers' keys, package cache keeps old prices, and the demo
// names each of them.
func TestNamesOldPrices(t *testing.T) {
	t.Parallel()
	_, cfg := givenServers(t)
	cfg.MapFile = changedMap(t, `keys: ["{app}:{env}:product:{id}"]`, `keys: ["{app}:{env}:product:{id}:page"]`)
	r := play(t, start(t, cfg))
	for _, want := range []string{
		"readers with package cache: Redis has 49.90 for product 1001, but MySQL has 44.90",
		"readers with package cache: the next reader got 49.90 for product 1001, but MySQL has 44.90",
		"readers with package cache: the fill of product 1001 from before the change was not refused",
		"a missing outbox row: with triggers, the next reader got 49.90 for product 1001, but MySQL has 39.90",
	} {
		if !slices.Contains(r.Faults, want) {
			t.Errorf("the faults lack %q:\n%s", want, strings.Join(r.Faults, "\n"))
		}
	}
	if r.OK || len(r.Readers) != 2 || len(r.Readers[1].Old) == 0 {
		t.Errorf("ok is %v, readers are %+v", r.OK, r.Readers)
	}
}

// If naive readers keep no old price, the race demonstrates nothing, and the demo reports that.
func TestNamesARaceThatShowsNothing(t *testing.T) {
	t.Parallel()
	right := 4490
	naive := demo.Readers{Name: "GET", Arranged: demo.Arranged{Outcome: demo.Outcome{Product: 1, MySQLCents: right, RedisCents: &right, NextCents: right}}}
	ours := demo.Readers{Name: "cache", Arranged: demo.Arranged{Outcome: demo.Outcome{Product: 1, MySQLCents: right, NextCents: right}, Refused: true}}
	got := demo.JudgeReaders(&naive, &ours)
	if len(got) != 1 || got[0] != "readers with GET kept no old price of product 1, so the race was not shown" {
		t.Errorf("faults: %q", got)
	}
}
