package lock_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
)

// losses is how many locks go lost in each of the tests below.
var losses = flag.Int("losses", 300, "how many locks go lost")

const (
	atOnce = 500
	cutTTL = 12 * time.Second // half of it does for a machine that is late with timers
)

// The contexts of a holder that runs, and is cut off from Redis, end before Redis gives the locks
// to another holder.
func TestContextsEndBeforeLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	link, client := w.disturbed(func(*redis.Options) {})
	l := w.Locker(lock.Config{Backend: lock.Redis{Client: client}, TTL: cutTTL, Margin: cutTTL/2 - 100*time.Millisecond, Timeout: cutTTL / 3})
	before, least := 0, cutTTL
	for first := 0; first < *losses; first += atOnce {
		warm(t, client)
		for _, left := range w.cutOff(l, link, first, min(atOnce, *losses-first)) {
			if left <= 0 {
				t.Fatalf("a context ended %s after others could have the lock, and %d before", -left, before)
			}
			before++
			least = min(least, left)
		}
		must(t, link.Heal(t.Context()))
	}
	if before == 0 {
		t.Error("no lock was lost")
	}
	t.Logf("%d contexts ended before the leases of %d locks, the last one %s before", before, *losses, least)
}

// cutOff has n locks lost, and returns what was left of the leases when the contexts ended. Those
// are left out that were gone before, since this machine was too busy to extend them.
func (w *world) cutOff(l *lock.Locker, link *servers.Link, first, n int) (left []time.Duration) {
	held, err := locktest.AcquireMany(w.Context(), l, first, n)
	must(w, err)
	ends := make([]atomic.Int64, n)
	var ended sync.WaitGroup
	ended.Add(n)
	for i, h := range held {
		context.AfterFunc(h.Context(), func() {
			ends[i].Store(time.Now().UnixMilli()) // the clock of Redis, which runs here
			ended.Done()
		})
	}
	must(w, link.Swallow())
	expires := make([]*redis.DurationCmd, n)
	_, err = w.redis.Pipelined(w.Context(), func(pipe redis.Pipeliner) error {
		for i := range expires {
			expires[i] = pipe.PExpireTime(w.Context(), fmt.Sprintf("lock:{%d}", first+i))
		}
		return nil
	})
	must(w, err)
	ended.Wait()
	for i, h := range held {
		wantError(w, "the end of a lock", context.Cause(h.Context()), lock.ErrLost)
		if at := expires[i].Val(); at > 0 {
			left = append(left, at-time.Duration(ends[i].Load())*time.Millisecond)
		}
	}
	return left
}

// A process that was frozen beyond its leases asks MySQL for none of its sections: it looks at its
// clock first.
func TestFrozenHolderOfMany(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	h := w.StartHolder()
	h.Order(fmt.Sprint("acquire ", *losses))
	h.WantSaid("lost 0, asked 0")
	h.Freeze()
	testenv.Eventually(t, "the end of all leases", func() bool { return len(w.redis.Keys(t.Context(), "lock:{*}").Val()) == 0 })
	h.Order("section of each")
	h.Thaw()
	h.WantSaid(fmt.Sprintf("lost %d, asked 0", *losses))
}
