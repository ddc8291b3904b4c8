package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// losses is how many locks go lost at once in each of the tests below.
var losses = flag.Int("losses", 300, "how many locks go lost at once")

// acquireMany acquires locks, several at once, that have numbers for names.
func acquireMany(ctx context.Context, l *lock.Locker, n int) ([]*lock.Held, error) {
	all, errs := make([]*lock.Held, n), make([]error, n)
	var group sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				all[i], errs[i] = l.Acquire(ctx, fmt.Sprint(i))
			}
		})
	}
	group.Wait()
	return all, errors.Join(errs...)
}

// The contexts of a holder that runs, and is cut off from Redis, end before Redis lets anybody else have the locks.
func TestContextsEndBeforeLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ttl := max(12*time.Second, time.Duration(*losses)*12*time.Millisecond) // half of it does for a machine that is late with timers
	link, client := w.disturbed(func(*redis.Options) {})
	l := w.locker(lock.Config{Backend: lock.Redis{Client: client}, TTL: ttl, Margin: ttl/2 - 100*time.Millisecond, Timeout: ttl / 3})
	held, err := acquireMany(t.Context(), l, *losses)
	must(t, err)
	ends := make([]atomic.Int64, *losses)
	var ended sync.WaitGroup
	ended.Add(*losses)
	for i, h := range held {
		context.AfterFunc(h.Context(), func() {
			ends[i].Store(time.Now().UnixMilli()) // the clock of Redis, which runs here
			ended.Done()
		})
	}
	must(t, link.Swallow())
	expires := make([]*redis.DurationCmd, *losses)
	_, err = w.redis.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range expires {
			expires[i] = pipe.PExpireTime(t.Context(), fmt.Sprintf("lock:{%d}", i))
		}
		return nil
	})
	must(t, err)
	ended.Wait()
	before, late, least := 0, 0, ttl
	for i := range ends {
		if err := context.Cause(held[i].Context()); !errors.Is(err, lock.ErrLost) {
			t.Fatalf("lock %d has ended for another reason: %v", i, err)
		}
		left := expires[i].Val() - time.Duration(ends[i].Load())*time.Millisecond
		switch {
		case expires[i].Val() < 0: // it was gone: this machine is too busy to extend it
		case left <= 0:
			late++
		default:
			before++
			least = min(least, left)
		}
	}
	if late > 0 || before == 0 {
		t.Errorf("%d of %d contexts ended when others could have the lock, and %d before", late, *losses, before)
	}
	t.Logf("%d of %d contexts ended before the lease did, the last one %s before", before, *losses, least)
}

// A process that was frozen beyond its leases asks MySQL for none of its sections: it looks at its clock first.
func TestFrozenHolderOfMany(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	h := w.startHolder()
	h.order(fmt.Sprint("acquire ", *losses))
	h.wantSaid("lost 0, asked 0")
	h.freeze()
	testenv.Eventually(t, "the end of all leases", func() bool { return len(w.redis.Keys(t.Context(), "lock:{*}").Val()) == 0 })
	h.order("section of each")
	h.thaw()
	h.wantSaid(fmt.Sprintf("lost %d, asked 0", *losses))
}

// sections has a section of each lock, and reports how many were refused because the lock was lost.
func sections(ctx context.Context, pool lock.Pool, all []*lock.Held) (lost int, err error) {
	for _, held := range all {
		err := held.InTx(ctx, pool, func(*sql.Tx) error { return nil })
		switch {
		case errors.Is(err, lock.ErrLost):
			lost++
		case err != nil:
			return lost, err
		}
	}
	return lost, nil
}
