package cache_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

const burstCalls = 1000

// A burstWorld has a Cache whose client has 20 connections over a slow link.
type burstWorld struct {
	*world
	c     *cache.Cache
	log   *lines
	loads atomic.Int64
}

func newBurstWorld(t *testing.T, at *world) *burstWorld {
	t.Helper()
	w := &burstWorld{world: at, log: &lines{}}
	options, err := redis.ParseURL(w.url)
	testenv.Must(t, err)
	link := newLink(t, options.Addr)
	testenv.Must(t, link.Slow(20))
	options.Addr, options.ContextTimeoutEnabled, options.PoolSize = link.Addr(), true, 20
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	w.c = w.cache(cache.Config{Redis: client, Timeout: 500 * time.Millisecond, Logger: w.log.logger()})
	return w
}

// burst fetches many keys at the same time.
func (w *burstWorld) burst() {
	w.Helper()
	var group sync.WaitGroup
	for i := range burstCalls {
		group.Go(func() {
			_, err := cache.Fetch(w.Context(), w.c, fmt.Sprint("k", i), func(context.Context) (string, error) {
				w.loads.Add(1)
				return "v", nil
			}, nil)
			if err != nil {
				w.Error(err)
			}
		})
	}
	group.Wait()
}

// A burst that needs many more connections than the client has takes its time. It neither opens the
// breaker nor loads what is cached, and the log names the pool. On a busy machine a command can time
// out in any one burst, because Redis or this process does not run.
func TestBurstLargerThanThePool(t *testing.T) {
	t.Parallel()
	w := newBurstWorld(t, newWorld(t))
	closed := func() bool { // whether a burst left the breaker closed
		before := len(w.log.with("Redis is away"))
		w.loads.Store(0)
		w.burst()
		return len(w.log.with("Redis is away")) == before
	}
	testenv.Eventually(t, "a burst that misses and leaves the breaker closed", func() bool {
		testenv.Must(t, w.client.FlushDB(t.Context()).Err())
		still := closed()
		if got := w.loads.Load(); got != burstCalls {
			t.Fatalf("%d loads of %d missing keys", got, burstCalls)
		}
		return still
	})
	testenv.Eventually(t, "a burst that loads nothing and leaves the breaker closed", func() bool {
		return closed() && w.loads.Load() == 0
	})
	testenv.Must(t, w.c.Healthy())
	if pool := w.log.with("commands wait for the connections of the client's pool"); len(pool) == 0 {
		t.Errorf("no line names the pool: %q", w.log.with(""))
	}
}

// A Redis that answers nothing opens the breaker in such a burst as well, so all callers load.
func TestBurstAtAFrozenRedis(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := newBurstWorld(t, worldAt(t, r.URL()))
	w.burst()
	testenv.Must(t, r.Pause())
	testenv.Eventually(t, "a burst that opens the breaker once", func() bool { // none does while this process does not run
		w.loads.Store(0)
		w.burst()
		if got := w.loads.Load(); got != burstCalls {
			t.Fatalf("%d loads of %d calls", got, burstCalls)
		}
		return len(w.log.with("Redis is away")) == 1
	})
	testenv.Must(t, r.Resume())
}
