package cache_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A loss is a hook of go-redis that lets the server run the next request for a lease, and withholds
// the answer until no caller waits for it.
type loss struct {
	armed atomic.Bool
	lost  chan []any // what was sent of it
}

func lossOf(client *redis.Client) *loss {
	l := &loss{lost: make(chan []any, 1)}
	client.AddHook(l)
	return l
}

func (l *loss) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *loss) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return l.lose(ctx, next(ctx, cmd), cmd) }
}

func (l *loss) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return l.lose(ctx, next(ctx, cmds), cmds...) }
}

func (l *loss) lose(ctx context.Context, err error, cmds ...redis.Cmder) error {
	args := cmds[0].Args()
	if !strings.HasPrefix(cmds[0].Name(), "eval") || len(args) != 9 || err != nil || !l.armed.CompareAndSwap(true, false) {
		return err
	}
	l.lost <- args
	<-ctx.Done()
	for _, cmd := range cmds {
		cmd.SetErr(ctx.Err())
	}
	return ctx.Err()
}

// lease calls Lease of the cache for "k", loses the answer, and returns what was sent. On a busy
// machine a call may give up before its request is sent; the next one gets more time.
func (l *loss) lease(t *testing.T, c *cache.Cache) []any {
	t.Helper()
	l.armed.Store(true)
	for limit := 100 * time.Millisecond; l.armed.Load(); limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := c.Lease(ctx, "k", nil)
		cancel()
		wantError(t, "Lease", err, context.DeadlineExceeded)
	}
	return <-l.lost
}

// wantNoLease waits until the key has no lease.
func (w *world) wantNoLease(what, key string) {
	w.Helper()
	testenv.Eventually(w, what+": the lease to be given back", func() bool { return w.stored("lock:fill:{"+key+"}") == "" })
}

// A lease whose answer came too late, or after its caller has left, is released, although no caller
// learned of it. Otherwise other callers would wait for it, for an hour here.
func TestLostLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := cache.Config{Lease: time.Hour}
	other := w.cache(config)
	tagged := cache.Moderate.Tagged("t")
	many := func(ctx context.Context, c *cache.Cache) {
		_, err := cache.FetchMany(ctx, c, []string{"k", "k2"}, func(context.Context, []string) (map[string]string, error) {
			return map[string]string{"k": "old"}, nil
		}, tagged)
		if ctx.Err() == nil {
			testenv.Must(t, err)
		}
	}
	one := func(ctx context.Context, c *cache.Cache) {
		if _, err := cache.Fetch(ctx, c, "k", w.db.read, nil); ctx.Err() == nil {
			testenv.Must(t, err)
		}
	}
	for name, test := range map[string]struct {
		call        func(context.Context, *cache.Cache)
		short, lead bool // the caller's time, and whether the lease is asked for first
	}{
		"Fetch":            {call: one},
		"Fetch, leading":   {call: one, lead: true},
		"FetchMany":        {call: many},
		"FetchMany, short": {call: many, short: true},
		"Lease, short": {call: func(ctx context.Context, c *cache.Cache) {
			_, err := c.Lease(ctx, "k", tagged)
			wantError(t, "Lease", err, context.DeadlineExceeded)
		}, short: true},
	} {
		config.Timeout, config.Redis = 300*time.Millisecond, testenv.Client(t, w.url)
		if test.short {
			config.Timeout = patient
		}
		loss, c := lossOf(config.Redis.(*redis.Client)), w.cache(config)
		if test.lead {
			missing(t, c)
		}
		loss.armed.Store(true)
		// On a busy machine a call may give up before its request is sent.
		for limit := 100 * time.Millisecond; loss.armed.Load(); limit *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), patient)
			if test.short {
				ctx, cancel = context.WithTimeout(t.Context(), limit)
			}
			testenv.Must(t, other.Delete(t.Context(), "k", "k2"))
			test.call(ctx, c)
			cancel()
		}
		w.wantNoLease(name, "k")
		w.wantNoLease(name, "k2")
		wantFetched(t, name+": the next one", other, "k", w.db.read, "old")
	}
}

// A moved is a hook of go-redis that answers requests for keys as a server of a Cluster does that
// has them no longer, and a client that follows no more of that.
type moved struct{ left atomic.Int64 }

type redirection string

func (r redirection) Error() string { return string(r) }
func (redirection) RedisError()     {}

func (m *moved) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (m *moved) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (m *moved) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "get" || m.left.Add(-1) < 0 {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(redirection("MOVED 1 127.0.0.1:7000"))
		}
		return cmds[0].Err()
	}
}

// A server that has a key no longer has said nothing about its lease.
func TestLostLeaseOfASlotThatMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client, moving := testenv.Client(t, w.url), &moved{}
	loss, c := lossOf(client), w.cache(cache.Config{Redis: client, Lease: time.Hour, Timeout: 300 * time.Millisecond, Pause: time.Millisecond})
	client.AddHook(moving)
	moving.left.Store(3)
	loss.lease(t, c)
	w.wantNoLease("after three redirections", "k")
}

// The server runs a delayed copy of the request only after the lease was released. The cache looks
// for that lease a second time.
func TestLateCopyOfALeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := testenv.Client(t, w.url)
	loss, c := lossOf(client), w.cache(cache.Config{Redis: client, Lease: time.Hour, Timeout: 2 * time.Second})
	args := loss.lease(t, c)
	w.wantNoLease("at first", "k")
	args[0], args[1] = "eval", protocol.LeaseScript
	testenv.Must(t, w.client.Do(t.Context(), args...).Err())
	w.wantNoLease("the copy", "k")
}

// A Redis that hangs later runs requests for leases that no caller waits for.
func TestRedisStandsStill(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	w := worldAt(t, r.URL())
	for name, first := range map[string]bool{"read first": false, "lease first": true} {
		c := w.cache(cache.Config{Timeout: 100 * time.Millisecond, Pause: 50 * time.Millisecond, Lease: time.Hour, Prefix: name})
		other := w.cache(cache.Config{Lease: time.Hour, Prefix: name})
		testenv.Eventually(t, "a value in Redis", func() bool {
			got, err := cache.FetchResult(t.Context(), c, "first", w.db.read, nil)
			return err == nil && got.Source == cache.FromRedis
		})
		if first {
			missing(t, c)
		}
		p := w.db.paused()
		loading := fetchBeside(t, c, "loading", p.load, nil)
		<-p.read
		testenv.Must(t, r.Pause())
		close(p.release)
		wantAnswer(t, name, loading, "old")
		for i := range 3 {
			wantFetch(t, name, c, fmt.Sprint("k", i), w.db.read, nil, "old", cache.FromLoader)
		}
		testenv.Must(t, r.Resume())
		for _, key := range []string{"loading", "k0", "k1", "k2"} {
			// though a lease lasts an hour
			wantFetched(t, name+", "+key, other, key, w.db.read, "old")
		}
	}
}

// A lease that cannot be released immediately is released when Redis is available again.
func TestLeaseIsGivenBackAfterAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	options, err := redis.ParseURL(w.url)
	testenv.Must(t, err)
	link := newLink(t, options.Addr)
	options.Addr, options.ContextTimeoutEnabled = link.Addr(), true
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	c := w.cache(cache.Config{Redis: client, Lease: time.Hour, Pause: 50 * time.Millisecond})
	p := w.db.paused()
	answers := fetchBeside(t, c, "k", func(ctx context.Context) (string, error) {
		_, _ = p.load(ctx)
		return "", context.Canceled
	}, nil)
	<-p.read
	link.Close()
	close(p.release)
	wantError(t, "Fetch", (<-answers).err, context.Canceled)
	testenv.Must(t, link.Open())
	w.wantNoLease("after the outage", "k")
}

// A lease is released even if Redis refuses the tag versions that were requested with it: here
// because a list has the name of a version.
func TestLeaseIsGivenBackWithoutStamps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, other := w.cache(cache.Config{Lease: time.Hour}), w.cache(cache.Config{Lease: time.Hour})
	testenv.Must(t, w.client.RPush(t.Context(), "stamp:t", "x").Err())
	for range 2 {
		wantFetch(t, "tagged", c, "k", w.db.read, cache.Moderate.Tagged("t"), "old", cache.FromLoader)
	}
	wantFetched(t, "another process", other, "k", w.db.read, "old")
}

// A lease that is granted while the Cache is closed is given back.
func TestCloseGivesLeasesBack(t *testing.T) {
	t.Parallel()
	w, stop := newWorld(t), stopAt("lease")
	c := w.cache(cache.Config{Lease: time.Hour, HardTimeout: time.Minute, Hooks: cache.Hooks{Redis: stop.hook}})
	stop.armed.Store(true)
	answers := fetchBeside(t, c, "k", w.db.read, nil)
	<-stop.reached
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	testenv.Eventually(t, "Close", func() bool { return c.Delete(t.Context()) != nil })
	close(stop.goOn)
	testenv.Must(t, <-closed)
	wantError(t, "Fetch", (<-answers).err, cache.ErrClosed)
	if text := w.stored("lock:fill:{k}"); text != "" {
		t.Errorf("the lease is still there: %s", text)
	}
}
