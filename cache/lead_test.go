package cache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
)

// A journal records the commands that are sent.
type journal struct {
	mu    sync.Mutex
	verbs []string
}

func (j *journal) hook(ctx context.Context, verb string) (context.Context, func(error)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.verbs = append(j.verbs, verb)
	return ctx, nil
}

// since calls f and returns what was sent meanwhile.
func (j *journal) since(f func()) []string {
	j.mu.Lock()
	at := len(j.verbs)
	j.mu.Unlock()
	f()
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.verbs[at:])
}

// missing makes a Cache expect that reads miss.
func missing(t *testing.T, c *cache.Cache) {
	t.Helper()
	for i := range 40 {
		_, err := cache.Fetch(t.Context(), c, fmt.Sprint("missing", t.Name(), i, time.Now().UnixNano()), func(context.Context) (string, error) { return "", nil }, nil)
		testenv.Must(t, err)
	}
}

// If reads miss, the lease is requested first. A value that exists anyway counts as read.
func TestLeaseFirst(t *testing.T) {
	t.Parallel()
	w, sent := newWorld(t), &journal{}
	c := w.cache(cache.Config{Hooks: cache.Hooks{Redis: sent.hook}})
	other := w.cache(cache.Config{})
	want := func(what string, f func(), verbs ...string) {
		t.Helper()
		if got := sent.since(f); !slices.Equal(got, verbs) {
			t.Errorf("%s: sent %q, wanted %q", what, got, verbs)
		}
	}
	fetch := func(key string, p *cache.Policy, from cache.Source) func() {
		return func() { t.Helper(); wantFetch(t, key, c, key, w.db.read, p, "old", from) }
	}
	tagged := cache.Moderate.Tagged("t")
	wantFetch(t, "elsewhere", other, "there", w.db.read, tagged, "old", cache.FromLoader)
	fetch("first", nil, cache.FromLoader)() // asks for the time too
	want("at first", fetch("second", nil, cache.FromLoader), "read", "lease", "fill")
	missing(t, c)
	want("a miss", fetch("k1", nil, cache.FromLoader), "lease", "fill")
	want("a tagged miss", fetch("k2", tagged, cache.FromLoader), "lease", "fill")
	want("a hit", fetch("k1", nil, cache.FromRedis), "lease")
	want("a tagged hit", fetch("there", tagged, cache.FromRedis), "lease")
	missing(t, c)
	want("sliding", fetch("k3", cache.Sliding(time.Minute, time.Hour), cache.FromLoader), "read", "lease", "fill")
	want("no lease", fetch("{a}", nil, cache.FromLoader), "read")
	testenv.Must(t, w.client.RPush(t.Context(), "list", "x").Err())
	want("a list", fetch("list", nil, cache.FromLoader), "lease", "read")
	testenv.Must(t, w.client.Set(t.Context(), "foreign", `{"f":9,"v":1,"e":1}`, 0).Err())
	want("foreign", fetch("foreign", nil, cache.FromLoader), "lease")
	testenv.Must(t, w.client.Set(t.Context(), "corrupt", `{`, 0).Err())
	want("corrupt", fetch("corrupt", nil, cache.FromLoader), "lease", "lease", "fill")
	testenv.Must(t, w.client.Set(t.Context(), "lock:hold:{held}", "h", time.Minute).Err())
	want("held", fetch("held", nil, cache.FromLoader), "lease", "read", "lease")
	missing(t, c)
	want("short of time", func() {
		ctx, cancel := context.WithTimeout(t.Context(), patient/2)
		defer cancel()
		_, err := cache.Fetch(ctx, c, "k4", w.db.read, nil)
		testenv.Must(t, err)
	}, "read", "lease", "fill")
	for range 40 {
		fetch("k1", nil, cache.FromRedis)()
	}
	want("hits prevail", fetch("k1", nil, cache.FromRedis), "read")
	want("hits prevail", fetch("k5", nil, cache.FromLoader), "read", "lease", "fill")
}

// An expired value that the script of the lease returns is used immediately, and loaded in the
// background.
func TestLeaseFirstFindsAnExpiredValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	testenv.Must(t, w.client.Set(t.Context(), "k", `{"e":1,"s":99999999999999,"v":"old"}`, 0).Err())
	missing(t, c)
	p := w.db.paused()
	for range 2 { // the second while the load is under way
		got, err := cache.FetchResult(t.Context(), c, "k", p.load, nil)
		if err != nil || got.Value != "old" || !got.Stale {
			t.Errorf("%+v, %v", got, err)
		}
		missing(t, c)
	}
	<-p.read
	close(p.release)
}

// The answer of the script of the lease is for its caller alone. Later callers get the new value,
// and the load under a lease that was taken first is refused like any other.
func TestLeaseFirstIsRaced(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{true, false} {
		w, stop := newWorld(t), stopAt("lease")
		c := w.cache(cache.Config{Hooks: cache.Hooks{Redis: stop.hook}})
		if there {
			wantFetch(t, "first", c, "k", w.db.read, nil, "old", cache.FromLoader)
		}
		missing(t, c)
		stop.armed.Store(true)
		p := w.db.paused()
		early := fetchBeside(t, c, "k", p.load, nil)
		<-stop.reached
		if there {
			w.commit("new", "k")
		}
		before := c.Statistics().Misses
		late := fetchBeside(t, c, "k", w.db.read, nil)
		testenv.Eventually(t, "the other to wait", func() bool { return c.Statistics().Misses > before })
		close(stop.goOn)
		if !there {
			<-p.read
			w.commit("new", "k")
			latest := fetchBeside(t, c, "k", w.db.read, nil)
			close(p.release)
			wantAnswer(t, "the latest", latest, "new")
		}
		wantAnswer(t, "the caller from before", early, "old")
		wantLate := "new"
		if !there {
			wantLate = "old" // it came before the load began
		}
		wantAnswer(t, "the caller from before the load, or from after the change", late, wantLate)
		wantFetch(t, "then", c, "k", w.db.read, nil, "new", cache.FromRedis)
	}
}

// Concurrent callers of one key in two processes that expect misses: one load, and no cycle of
// waits.
func TestLeaseFirstOneLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.cache(cache.Config{Lease: time.Hour}), w.cache(cache.Config{Lease: time.Hour})
	missing(t, a)
	missing(t, b)
	p := w.db.paused()
	before := a.Statistics().Misses + b.Statistics().Misses
	var all []<-chan answer
	for i := range 200 {
		all = append(all, fetchBeside(t, []*cache.Cache{a, b}[i%2], "k", p.load, nil))
	}
	<-p.read
	testenv.Eventually(t, "all to have missed", func() bool { return a.Statistics().Misses+b.Statistics().Misses == before+200 })
	close(p.release)
	for i, answers := range all {
		wantAnswer(t, fmt.Sprint("caller ", i), answers, "old")
	}
	if n := w.db.reads.Load(); n != 1 {
		t.Errorf("%d loads", n)
	}
}

// Close waits until Fetch has given back a lease that it has asked for before anything else.
func TestCloseGivesLeasesBackThatWereAskedForFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, answer := cachetest.NewStore(t), stopAt("lease")
		c, other := store.Cache(cache.Config{Hooks: cache.Hooks{Redis: answer.hook}}), store.Cache(cache.Config{})
		missing(t, c)
		answer.armed.Store(true)
		fetched := fetchBeside(t, c, "k", func(context.Context) (string, error) { return "", nil }, nil)
		<-answer.reached
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close has not waited")
		default:
		}
		close(answer.goOn)
		testenv.Must(t, <-closed)
		lease, err := other.Lease(t.Context(), "k", nil)
		if err != nil {
			t.Errorf("after Close: %v", err)
		} else {
			lease.Release(t.Context())
		}
		if a := <-fetched; !errors.Is(a.err, cache.ErrClosed) {
			t.Errorf("Fetch: %v", a)
		}
	})
}
