package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
)

// A heldReads is a Cache whose commands that read wait until release is called.
type heldReads struct {
	*Cache
	client  *redis.Client
	reads   atomic.Int32 // commands or pipelines that were sent
	goOn    chan struct{}
	release func()
}

func newHeldReads(t *testing.T) *heldReads {
	t.Helper()
	h := &heldReads{client: testenv.Client(t, testenv.Redis(t).URL), goOn: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.goOn) })
	c, err := New(Config{Redis: h.client, Timeout: 5 * time.Second})
	testenv.Must(t, err)
	h.Cache = c
	t.Cleanup(func() { h.release(); testenv.Must(t, c.Close()) })
	return h
}

// hold makes reads wait from now on.
func (h *heldReads) hold(sent func(nth int32)) {
	h.misses.level.Store(0)                                                                       // no read begins with the lease
	h.redis.hooks.Redis = func(ctx context.Context, verb string) (context.Context, func(error)) { // unguarded
		if verb == "read" {
			n := h.reads.Add(1)
			<-h.goOn
			sent(n)
		}
		return ctx, nil
	}
}

// fillWay starts as many reads as a readQueue sends without waiting.
func (h *heldReads) fillWay(t *testing.T, all *sync.WaitGroup) {
	t.Helper()
	for i := range mostFlights {
		key := fmt.Sprint("first", i) // callers of one key would share a load, and may read again
		all.Go(func() { _, _ = Fetch(context.Background(), h.Cache, key, loadsNothing, nil) })
	}
	testenv.Eventually(t, "reads in flight", func() bool { return h.reads.Load() == mostFlights })
}

// awaitWaiting waits until so many reads wait for a pipeline.
func (h *heldReads) awaitWaiting(t *testing.T, q *readQueue, n int) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprint(n, " reads wait"), func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.waiting) == n
	})
}

func loadsNothing(context.Context) (string, error) { return "", ErrNotFound }

// Reads that come while others are in flight are sent in one pipeline. Each caller gets the
// answer to its own key, by the tags of its own policy. A key that holds no text, one that is
// missing and a caller that leaves do not concern the others.
func TestReadsSharePipelines(t *testing.T) {
	t.Parallel()
	h := newHeldReads(t)
	policies := []*Policy{nil, Moderate.Tagged("a"), Moderate.Tagged("b", "a")}
	const most = 30
	for i := range most {
		key := fmt.Sprint("k", i)
		_, err := Fetch(t.Context(), h.Cache, key, func(context.Context) (string, error) { return "v" + key, nil }, policies[i%len(policies)])
		testenv.Must(t, err)
	}
	testenv.Must(t, h.client.RPush(t.Context(), "list", "x").Err())
	var all sync.WaitGroup
	h.hold(func(int32) {})
	h.fillWay(t, &all)
	left, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	all.Go(func() {
		_, err := Fetch(left, h.Cache, "k0", func(context.Context) (string, error) { return "", errors.New("loaded") }, nil)
		gone <- err
	})
	for i := range most {
		key := fmt.Sprint("k", i)
		all.Go(func() {
			got, err := FetchResult(t.Context(), h.Cache, key, func(context.Context) (string, error) { return "loaded", nil }, policies[i%len(policies)])
			if err != nil || got.Value != "v"+key || got.Source != FromRedis {
				t.Errorf("%s: %+v, %v", key, got, err)
			}
		})
	}
	for _, key := range []string{"list", "missing"} {
		all.Go(func() {
			got, err := FetchResult(t.Context(), h.Cache, key, func(context.Context) (string, error) { return key, nil }, nil)
			if err != nil || got.Value != key || got.Source != FromLoader {
				t.Errorf("%s: %+v, %v", key, got, err)
			}
		})
	}
	h.awaitWaiting(t, h.redis.reads.single, most+3)
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that has left got %v", err)
	}
	h.release()
	all.Wait()
	if got := h.reads.Load(); got != mostFlights+1 {
		t.Errorf("%d commands and pipelines that read, want %d", got, mostFlights+1)
	}
}

// A key that Redis refuses to read concerns its caller only.
func TestSharedReadIsRefused(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	admin := testenv.Client(t, r.URL())
	testenv.Must(t, admin.Do(t.Context(), "acl", "setuser", "shop", "on", ">secret", "+@all", "~public:*", "~lock:*", "~unstale:*", "&*").Err())
	h := newHeldReads(t)
	o := *admin.Options()
	o.Username, o.Password, o.ContextTimeoutEnabled = "shop", "secret", true
	h.redis.client = redis.NewClient(&o)
	t.Cleanup(func() { _ = h.redis.client.Close() })
	key := func(i int) string { return fmt.Sprint("public:", i) }
	for i := range 5 {
		_, err := Fetch(t.Context(), h.Cache, key(i), func(context.Context) (string, error) { return "v", nil }, nil)
		testenv.Must(t, err)
	}
	var all sync.WaitGroup
	h.hold(func(int32) {})
	h.fillWay(t, &all)
	fetch := func(key string, want Source) {
		all.Go(func() {
			got, err := FetchResult(t.Context(), h.Cache, key, func(context.Context) (string, error) { return "v", nil }, nil)
			if err != nil || got.Source != want {
				t.Errorf("%s: %+v, %v", key, got, err)
			}
		})
	}
	fetch("secret", FromLoader)
	for i := range 5 {
		fetch(key(i), FromRedis)
	}
	h.awaitWaiting(t, h.redis.reads.single, 6)
	h.release()
	all.Wait()
}

// Callers of a pipeline that panics load, and later reads are sent as before.
func TestSharedReadPanics(t *testing.T) {
	t.Parallel()
	h := newHeldReads(t)
	var all sync.WaitGroup
	h.hold(func(nth int32) {
		if nth == mostFlights+1 {
			panic("no tracer")
		}
	})
	h.fillWay(t, &all)
	for i := range 5 {
		all.Go(func() {
			if got, err := Fetch(t.Context(), h.Cache, fmt.Sprint("k", i), func(context.Context) (string, error) { return "v", nil }, nil); err != nil || got != "v" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	h.awaitWaiting(t, h.redis.reads.single, 5)
	h.release()
	all.Wait()
	if _, err := Fetch(t.Context(), h.Cache, "k9", func(context.Context) (string, error) { return "v", nil }, nil); err != nil {
		t.Error(err)
	}
	testenv.Eventually(t, "no read is in flight", func() bool {
		q := h.redis.reads.single
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.flights == 0 && len(q.waiting) == 0
	})
}

// A large value is not read with others, even while reads wait. A pipeline ends with the value that
// exceeds pipelineBytes.
func TestLargeValuesAreReadAlone(t *testing.T) {
	t.Parallel()
	h := newHeldReads(t)
	h.redis.sizes.large = map[string]int{"large": sharedBytes + 1, "k1": pipelineBytes}
	q := &readQueue{}
	for i := range 4 {
		q.waiting = append(q.waiting, &sharedRead{request: &request{c: h.Cache, name: fmt.Sprint("k", i)}})
	}
	for _, want := range []string{"k0 k1", "k2 k3"} {
		var names []string
		for _, s := range q.next() {
			names = append(names, s.request.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("a pipeline of %s, want %s", got, want)
		}
	}
	var all sync.WaitGroup
	h.hold(func(int32) {})
	h.fillWay(t, &all)
	all.Go(func() { _, _ = Fetch(context.Background(), h.Cache, "large", loadsNothing, nil) })
	testenv.Eventually(t, "the large value is asked for", func() bool { return h.reads.Load() == mostFlights+1 })
	h.release()
	all.Wait()
}

// A read that has waited for a timeout is sent alone.
func TestWaitingReadIsSentAlone(t *testing.T) {
	t.Parallel()
	h := newHeldReads(t)
	h.redis.timeout = 50 * time.Millisecond // the held reads do not end meanwhile
	var all sync.WaitGroup
	h.hold(func(int32) {})
	h.fillWay(t, &all)
	all.Go(func() { _, _ = Fetch(context.Background(), h.Cache, "k", loadsNothing, nil) })
	testenv.Eventually(t, "the read is sent alone", func() bool { return h.reads.Load() == mostFlights+1 })
	h.awaitWaiting(t, h.redis.reads.single, 0)
	h.release()
	all.Wait()
}

// A value whose end has passed when the store takes it is removed, and not kept without an end.
func TestEndedValueIsNotKept(t *testing.T) {
	t.Parallel()
	m := newMemory(Config{Memory: Memory{Size: 10, Bytes: 1 << 20, TTL: time.Minute}}.WithDefaults())
	t.Cleanup(m.close)
	m.obey(verdict{open: true})
	m.mu.Lock()
	m.values.weight = 1
	stored := m.values.insert("k", kept{"v", m.clock.NowNano() - int64(time.Second), noteOf(m.gate.open.Load(), 0, 0)}, nil, m.mark())
	m.mu.Unlock()
	if !stored {
		t.Fatal("not stored")
	}
	testenv.Eventually(t, "it is gone", func() bool { _, ok := m.get("k", nil); return !ok })
}

// In a Cluster, reads share pipelines by master, and a frozen one delays no reads of others.
func TestSharedReadsInACluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnCluster(t, 3, false)
	client := cluster.Client
	c, err := New(Config{Redis: client, Timeout: 5 * time.Second})
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, c.Close()) })
	load := func(context.Context) (string, error) { return "v", nil }
	byMaster := map[string][]string{}
	for i := range 60 {
		key := fmt.Sprint("k", i)
		_, err := Fetch(t.Context(), c, key, load, nil)
		testenv.Must(t, err)
		node, err := client.MasterForKey(t.Context(), key)
		testenv.Must(t, err)
		byMaster[node.Options().Addr] = append(byMaster[node.Options().Addr], key)
	}
	if len(byMaster) != 3 {
		t.Fatalf("keys of %d masters", len(byMaster))
	}
	var reads atomic.Int32
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	var held string // the master whose reads wait
	c.redis.hooks.Redis = func(ctx context.Context, verb string) (context.Context, func(error)) {
		if verb == "read" && ctx.Value(heldKey{}) == held {
			reads.Add(1)
			<-goOn
		}
		return ctx, nil
	}
	c.misses.level.Store(0) // no read begins with the lease
	for held = range byMaster {
		break
	}
	fetch := func(all *sync.WaitGroup, master, key string) {
		all.Go(func() {
			got, err := FetchResult(context.WithValue(t.Context(), heldKey{}, master), c, key, load, nil)
			if err != nil || got.Source != FromRedis {
				t.Errorf("%s: %+v, %v", key, got, err)
			}
		})
	}
	var slow, quick sync.WaitGroup
	for _, key := range byMaster[held] {
		fetch(&slow, held, key)
	}
	testenv.Eventually(t, "reads in flight", func() bool { return reads.Load() == mostFlights })
	queue, _ := c.redis.reads.nodes.Load(held)
	h := &heldReads{Cache: c}
	h.awaitWaiting(t, queue.(*readQueue), len(byMaster[held])-mostFlights)
	for master, keys := range byMaster {
		for _, key := range keys {
			if master != held {
				fetch(&quick, master, key)
			}
		}
	}
	quick.Wait()
	release()
	slow.Wait()
	if got := reads.Load(); got != mostFlights+1 {
		t.Errorf("%d commands and pipelines that read, want %d", got, mostFlights+1)
	}
}

type heldKey struct{}

// While pipelines have many reads, one is in flight, unless it takes long. Otherwise there are
// several.
func TestReadsOnTheirWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		q    *readQueue
		want bool
	}{
		"none":                    {&readQueue{size: 100}, true},
		"few":                     {&readQueue{flights: 1, size: manyReads, sent: time.Now()}, true},
		"many":                    {&readQueue{flights: 1, size: manyReads + 1, sent: time.Now().Add(time.Hour)}, false},
		"many, on a slow link":    {&readQueue{flights: 1, size: manyReads + 1, sent: time.Now().Add(-longFlight)}, true},
		"as many as there may be": {&readQueue{flights: mostFlights, sent: time.Now().Add(-time.Hour)}, false},
	} {
		if got := c.q.mayStart(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
