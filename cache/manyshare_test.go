package cache_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

var errBroken = errors.New("the database is away")

// allOf gives each key its own name as its value.
func allOf(keys []string) map[string]string {
	values := map[string]string{}
	for _, key := range keys {
		values[key] = key
	}
	return values
}

// Callers share loads that store nothing: callers that come before a load begins get its result,
// and all others share the next one.
func TestFetchManyShares(t *testing.T) {
	t.Parallel()
	remembersNone := cache.MustPolicy(cache.Options{TTL: time.Minute, NegativeTTL: -1})
	for name, c := range map[string]struct {
		config cache.Config
		load   func(ctx context.Context, keys []string) (map[string]string, error)
		want   map[string]string
		err    error
	}{
		"it fails":     {load: func(context.Context, []string) (map[string]string, error) { return nil, errBroken }, err: errBroken},
		"it times out": {load: func(ctx context.Context, _ []string) (map[string]string, error) { <-ctx.Done(); return nil, ctx.Err() }, err: cache.ErrLoadTimeout},
		"it is skipped": {load: func(ctx context.Context, keys []string) (map[string]string, error) {
			cache.FillFrom(ctx).Skip()
			return allOf(keys), nil
		}, want: allOf([]string{"a", "b"})},
		"no rows": {config: cache.Config{Policy: remembersNone}, load: func(context.Context, []string) (map[string]string, error) { return nil, nil }},
	} {
		for _, away := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, away %v", name, away), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var shared *cache.Cache
					if shared = cachetest.NewStore(t).Cache(c.config); away {
						shared = newCache(t, c.config) // without Redis
					}
					var loads atomic.Int64
					begun := time.Now()
					var all sync.WaitGroup
					for i := range 40 {
						all.Go(func() {
							keys := []string{"a", "b"}
							if i%2 == 1 {
								slices.Reverse(keys)
							}
							got, err := cache.FetchMany(t.Context(), shared, keys, func(ctx context.Context, keys []string) (map[string]string, error) {
								loads.Add(1)
								time.Sleep(100 * time.Millisecond)
								return c.load(ctx, keys)
							}, nil)
							if !errors.Is(err, c.err) || !maps.Equal(got, c.want) && err == nil {
								t.Errorf("got %v, %v", got, err)
							}
						})
					}
					all.Wait()
					// by the bubble's clock
					if took := time.Since(begun); loads.Load() > 2 || took > 10*time.Second {
						t.Errorf("%d loads, %v", loads.Load(), took)
					}
				})
			})
		}
	}
}

// A queue holds up the loads of a Cache that may run one at a time.
type queue struct {
	*cache.Cache
	*testing.T
	leave chan struct{}
}

func queueUp(t *testing.T) *queue {
	q := &queue{cachetest.NewStore(t).Cache(cache.Config{Loads: 1, HardTimeout: time.Minute, Lease: time.Hour}), t, make(chan struct{})}
	go func() {
		_, _ = cache.Fetch(t.Context(), q.Cache, "first", func(context.Context) (string, error) { <-q.leave; return "", nil }, nil)
	}()
	synctest.Wait()
	return q
}

// A manyAnswer is the result of a FetchMany in another goroutine, and the arguments of its loader.
type manyAnswer struct {
	got   map[string]string
	err   error
	asked [][]string
}

// many calls FetchMany in another goroutine and waits until it blocks. Its loader returns all
// values, or the error.
func (q *queue) many(ctx context.Context, keys []string, fails error) <-chan manyAnswer {
	answers := make(chan manyAnswer, 1)
	go func() {
		var a manyAnswer
		a.got, a.err = cache.FetchMany(ctx, q.Cache, keys, func(_ context.Context, keys []string) (map[string]string, error) {
			a.asked = append(a.asked, keys)
			return allOf(keys), fails
		}, nil)
		answers <- a
	}()
	synctest.Wait()
	return answers
}

// one is many by Fetch.
func (q *queue) one(key string, fails error) <-chan answer {
	answers := fetchBeside(q.T, q.Cache, key, func(context.Context) (string, error) { return key + " alone", fails }, nil)
	synctest.Wait()
	return answers
}

func (q *queue) want(what string, answers <-chan manyAnswer, err error, asked string) {
	q.Helper()
	if a := <-answers; !errors.Is(a.err, err) || fmt.Sprint(a.asked) != asked {
		q.Errorf("%s: got %v, %v, asked for %v, wanted %v and %s", what, a.got, a.err, a.asked, err, asked)
	}
}

// A failure may be about any key of its load: callers of all of its keys get it, and others load
// for themselves, like callers of Fetch.
func TestFetchManyFailsForWhomItConcerns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queueUp(t)
		first := q.many(t.Context(), []string{"a", "b"}, errBroken)
		same, fewer := q.many(t.Context(), []string{"b", "a"}, nil), q.many(t.Context(), []string{"a"}, nil)
		more, one := q.many(t.Context(), []string{"c", "a", "b"}, nil), q.one("b", nil)
		close(q.leave)
		q.want("who loads", first, errBroken, "[[a b]]")
		q.want("the same keys", same, errBroken, "[]")
		q.want("fewer keys", fewer, nil, "[[a]]")
		q.want("more keys", more, errBroken, "[[c]]")
		wantAnswer(t, "Fetch", one, "b alone")
	})
	synctest.Test(t, func(t *testing.T) { // no caller gets the result of Fetch
		q := queueUp(t)
		one := q.one("a", errBroken)
		many, single := q.many(t.Context(), []string{"a", "b"}, nil), q.many(t.Context(), []string{"a"}, nil)
		close(q.leave)
		if a := <-one; !errors.Is(a.err, errBroken) {
			t.Errorf("Fetch: %v", a)
		}
		if a, b := <-many, <-single; a.err != nil || b.err != nil || len(a.got) != 2 || len(b.got) != 1 || len(a.asked)+len(b.asked) != 2 {
			t.Errorf("got %+v and %+v", a, b)
		}
	})
	synctest.Test(t, func(t *testing.T) { // and that a load has hung
		c := cachetest.NewStore(t).Cache(cache.Config{HardTimeout: 8 * time.Second})
		q := &queue{Cache: c, T: t}
		go func() {
			_, _ = cache.FetchMany(t.Context(), c, []string{"a", "slow"}, func(ctx context.Context, _ []string) (map[string]string, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}, nil)
		}()
		synctest.Wait()
		time.Sleep(7 * time.Second) // by the bubble's clock
		q.want("a list without the slow one", q.many(t.Context(), []string{"a"}, nil), nil, "[[a]]")
	})
}

// Overlapping lists share values. Under the lease, they also share them with callers of Fetch, in
// both directions.
func TestFetchManySharesValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queueUp(t)
		first, alone := q.many(t.Context(), []string{"a", "b"}, nil), q.one("c", nil)
		one, many := q.one("a", nil), q.many(t.Context(), []string{"b", "c", "d"}, nil)
		close(q.leave)
		q.want("who loads", first, nil, "[[a b]]")
		wantAnswer(t, "Fetch", alone, "c alone")
		wantAnswer(t, "Fetch of what FetchMany loads", one, "a")
		a := <-many
		if want := map[string]string{"b": "b", "c": "c alone", "d": "d"}; a.err != nil || !maps.Equal(a.got, want) || fmt.Sprint(a.asked) != "[[d]]" {
			t.Errorf("got %v", a)
		}
	})
}

// A caller that goes away takes no load from those that wait for it.
func TestFetchManyOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queueUp(t)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := q.many(ctx, []string{"a", "b"}, nil), q.many(t.Context(), []string{"a"}, nil)
		cancel()
		if a := <-first; !errors.Is(a.err, context.Canceled) {
			t.Errorf("got %v", a)
		}
		close(q.leave)
		q.want("who waits", second, nil, "[]")
	})
}

// A load that a loader waits for needs no slot, which the loader itself may have.
func TestFetchManyHurries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cachetest.NewStore(t).Cache(cache.Config{Loads: 1})
		begun, inside := time.Now(), make(chan struct{})
		outer := fetchBeside(t, c, "outer", func(ctx context.Context) (string, error) {
			<-inside
			got, err := cache.FetchMany(ctx, c, []string{"a", "b"}, func(context.Context, []string) (map[string]string, error) { return nil, errBroken }, nil)
			return got["a"], err
		}, nil)
		synctest.Wait()
		q := &queue{Cache: c, T: t}
		many := q.many(t.Context(), []string{"a", "b"}, nil)
		close(inside)
		wantAnswer(t, "the loader", outer, "a")
		q.want("who loads", many, nil, "[[a b]]")
		if took := time.Since(begun); took > time.Second { // by the bubble's clock
			t.Errorf("it took %v", took)
		}
	})
}

// A key that another process is about to store does not wait for the load of a list's other keys.
func TestFetchManyWaitsForNoOtherKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, begun := cachetest.NewStore(t), time.Now()
		c, other := store.Cache(cache.Config{}), store.Cache(cache.Config{})
		fetchBeside(t, other, "b", func(context.Context) (string, error) { time.Sleep(20 * time.Millisecond); return "b", nil }, nil)
		synctest.Wait()
		slow := make(chan error, 1)
		go func() {
			got, err := cache.FetchMany(t.Context(), c, []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) {
				time.Sleep(5 * time.Second)
				return allOf(keys), nil
			}, nil)
			if got["b"] != "b" {
				t.Errorf("got %v", got)
			}
			slow <- err
		}()
		synctest.Wait()
		q := &queue{Cache: c, T: t}
		q.want("a list of the other key", q.many(t.Context(), []string{"b"}, nil), nil, "[]")
		if took := time.Since(begun); took > time.Second { // by the bubble's clock
			t.Errorf("it took %v", took)
		}
		testenv.Must(t, <-slow)
	})
}

// While the database is unavailable, all callers have an answer after a few loads, independent of
// other callers' keys.
func TestFetchManyInAHerd(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := cachetest.NewStore(t).Cache(cache.Config{})
			var all sync.WaitGroup
			for i := range 60 {
				all.Go(func() {
					for range 20 {
						begun := time.Now()
						if i%2 == 0 {
							_, _ = cache.Fetch(t.Context(), c, "a", func(context.Context) (string, error) { time.Sleep(100 * time.Millisecond); return "", errBroken }, nil)
						} else {
							keys := []string{"a"}
							if own {
								keys = append(keys, fmt.Sprint("own", i))
							}
							_, _ = cache.FetchMany(t.Context(), c, keys, func(context.Context, []string) (map[string]string, error) {
								time.Sleep(100 * time.Millisecond)
								return nil, errBroken
							}, nil)
						}
						// by the bubble's clock
						if took := time.Since(begun); took > 2*time.Second {
							t.Errorf("own keys %v, caller %d: it took %v", own, i, took)
						}
						time.Sleep(time.Duration(i%7) * time.Millisecond)
					}
				})
			}
			all.Wait()
		})
	}
}

// A client that panics ends the calls of all that wait, and no process.
func TestFetchManyClientPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := testenv.Client(t, w.url)
	client.AddHook(panicking{script: redis.NewScript(protocol.LeaseScript).Hash(), times: new(atomic.Int32)})
	c := w.cache(cache.Config{Redis: client})
	_, err := cache.FetchMany(t.Context(), c, []string{"a", "b"}, func(_ context.Context, keys []string) (map[string]string, error) { return allOf(keys), nil }, nil)
	if failure := new(cache.PanicError); !errors.As(err, &failure) {
		t.Errorf("got %v", err)
	}
}

// panicking is a client's hook that panics once when a script has run.
type panicking struct {
	redis.Hook
	script string // SHA-1
	times  *atomic.Int32
}

func (panicking) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (panicking) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return slices.Contains(cmd.Args(), any(p.script)) }) && p.times.Add(1) == 1 {
			panic("the client's hook")
		}
		return err
	}
}

// A value that was read before an invalidation is not returned to callers that come after it.
func TestFetchManyIsRacedInOneProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{Lease: time.Minute})
	many := func(load cache.Loader[string]) <-chan answer {
		answers := make(chan answer, 1)
		go func() {
			got, err := cache.FetchMany(t.Context(), c, []string{"k"}, func(ctx context.Context, _ []string) (map[string]string, error) {
				value, err := load(ctx)
				return map[string]string{"k": value}, err
			}, nil)
			answers <- answer{got["k"], err}
		}()
		return answers
	}
	p := w.db.paused()
	early := many(p.load)
	<-p.read
	joined := many(w.db.read)
	w.commit("new", "k")
	late := many(w.db.read)
	testenv.Eventually(t, "all to miss", func() bool { return c.Statistics().Misses >= 3 })
	close(p.release)
	wantAnswer(t, "who came before", early, "old")
	wantAnswer(t, "who came after", late, "new")
	// before the commit, but it cannot be told
	wantAnswer(t, "who came after the load", joined, "new")
}
