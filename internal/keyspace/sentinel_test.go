package keyspace_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// The master is found through Sentinel, and after a failover the new one.
func TestSentinel(t *testing.T) {
	t.Parallel()
	set := testenv.OwnSentinel(t)
	k := open(t, keyspace.Options{Redis: at(set.URL("", 2)), Timeout: time.Second})
	at2 := testenv.Client(t, "redis://"+set.Master.Addr()+"/2")
	fill(t, at2, "a", "b")
	fill(t, at2, leases("a", "b")...)
	mustUnlink(t, k, targets("a"))
	if _, err := k.Sweeper.Sweep(t.Context(), []string{"b*"}, nil); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, at2, append([]string{"a", "b"}, leases("a", "b")...))
	hear := subscribe(t, at2, "cache:invalidate")
	if _, err := k.Publisher.Publish(t.Context(), "cache:invalidate", protocol.FormatEvent, keyspace.News{Keys: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	decode(t, hear())

	set.FailOver(t)
	at2 = testenv.Client(t, "redis://"+set.Replica.Addr()+"/2")
	fill(t, at2, "c")
	testenv.Eventually(t, "the switch", func() bool {
		_, err := k.Unlinker.Unlink(t.Context(), targets("c"))
		return err == nil && len(left(t, at2, "c")) == 0
	})
}

// A sweep that began at a server that is no longer a master begins again at its successor, although
// the old one still answers.
func TestSweepSentinelFailover(t *testing.T) {
	t.Parallel()
	set := testenv.OwnSentinel(t)
	k := open(t, keyspace.Options{Redis: at(set.URL("", 2)), Timeout: time.Second, BeaconTTL: time.Hour, SweepShare: 1})
	k.Sweeper.WatchEveryPage()
	keys, staying := names(30_000, "sweep:%d"), names(1000, "stay:%d")
	at2 := testenv.Client(t, "redis://"+set.Master.Addr()+"/2")
	fill(t, at2, append(keys, staying...)...)
	fill(t, at2, leases(keys...)...)
	if n, err := at2.Do(t.Context(), "wait", 1, 10_000).Int(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	done := false
	watch := func(p keyspace.Progress) {
		if !done && p.Scanned > 10_000 {
			done = true
			set.FailOver(t)
		}
	}
	again := 0
	testenv.Eventually(t, "a sweep", func() bool { // after a loss it is the caller's to repeat
		result, err := k.Sweeper.Sweep(t.Context(), []string{"sweep:*"}, watch)
		again += result.Again
		if err != nil {
			again++
		}
		return err == nil
	})
	if again == 0 {
		t.Error("the sweep did not begin again: the test has lost its point")
	}
	at2 = testenv.Client(t, "redis://"+set.Replica.Addr()+"/2")
	wantLeft(t, at2, append(keys, leases(keys...)...))
	wantLeft(t, at2, staying, staying...)
}
