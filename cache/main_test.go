package cache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/redisurl"
)

func TestMain(m *testing.M) {
	keyspace.SetClientLog(nil)
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it refuses none but nil
	for variable, life := range map[string]func(url string) error{readerVariable: readOnOrder, busyVariable: readBusily} {
		if url := os.Getenv(variable); url != "" {
			if err := life(url); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	testenv.Main(m)
}

// patient is a Timeout that a busy machine does not reach.
const patient = 5 * time.Second

// newCache makes a Cache that closes with the test.
func newCache(t testing.TB, config cache.Config) *cache.Cache {
	t.Helper()
	if config.Timeout == 0 {
		config.Timeout = patient
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := cache.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A world is a Redis, the worker's side of it, and a database with one row.
type world struct {
	testing.TB
	url    string
	client *redis.Client
	worker *keyspace.Keyspace
	db     *database
}

func newWorld(t testing.TB) *world {
	t.Helper()
	r := testenv.Redis(t)
	return worldAt(t, r.URL)
}

func worldAt(t testing.TB, url string) *world {
	t.Helper()
	at, err := redisurl.Parse(url, false)
	testenv.Must(t, err)
	k, err := keyspace.Open(keyspace.Options{Redis: at, Timeout: patient})
	testenv.Must(t, err)
	t.Cleanup(func() { _ = k.Close() })
	w := &world{TB: t, url: url, worker: k, db: &database{value: "old"}}
	if strings.HasPrefix(url, "redis:") {
		w.client = testenv.Client(t, url)
	}
	return w
}

// cache returns the Cache of one process.
func (w *world) cache(config cache.Config) *cache.Cache {
	w.Helper()
	if config.Redis == nil {
		config.Redis = testenv.Client(w, w.url)
	}
	return newCache(w, config)
}

// commit changes the row, and then does what the worker does with keys.
func (w *world) commit(value string, keys ...string) {
	w.Helper()
	w.db.set(value)
	w.unlink(keys...)
}

func (w *world) unlink(keys ...string) {
	w.Helper()
	targets := make([]keyspace.Target, len(keys))
	for i, key := range keys {
		targets[i].Key = key
	}
	done, err := w.worker.Unlinker.Unlink(w.Context(), targets)
	if err != nil || len(done.Failures) > 0 {
		w.Fatalf("unlink: %v, %v", err, done.Failures)
	}
}

// stored returns what Redis holds under a key.
func (w *world) stored(key string) string {
	w.Helper()
	text, err := w.client.Get(w.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		w.Fatal(err)
	}
	return text
}

// A database holds one value.
type database struct {
	mu    sync.Mutex
	value string
	reads atomic.Int64
}

func (d *database) set(value string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.value = value
}

func (d *database) read(context.Context) (string, error) {
	d.reads.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.value, nil
}

// A pause stops loads between reading the row and returning it.
type pause struct {
	db      *database
	read    chan struct{} // one for each load that has read
	release chan struct{} // closed to let all return
}

func (d *database) paused() *pause {
	return &pause{d, make(chan struct{}, 1000), make(chan struct{})}
}

func (p *pause) load(ctx context.Context) (string, error) {
	value, _ := p.db.read(ctx)
	p.read <- struct{}{}
	select {
	case <-p.release:
		return value, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// A stop holds up the first reply to one kind of command after it was armed.
type stop struct {
	verb    string
	before  func() // run before that command is sent
	armed   atomic.Bool
	reached chan struct{}
	goOn    chan struct{} // closed to let the reply through
}

func stopAt(verb string) *stop {
	return &stop{verb: verb, reached: make(chan struct{}), goOn: make(chan struct{})}
}

func (s *stop) hook(ctx context.Context, verb string) (context.Context, func(error)) {
	if verb != s.verb || !s.armed.CompareAndSwap(true, false) {
		return ctx, nil
	}
	if s.before != nil {
		s.before()
	}
	return ctx, func(error) {
		close(s.reached)
		<-s.goOn
	}
}

// An answer is the result of a Fetch in another goroutine.
type answer struct {
	value string
	err   error
}

func fetchBeside(t testing.TB, c *cache.Cache, key string, load cache.Loader[string], p *cache.Policy) <-chan answer {
	t.Helper()
	answers := make(chan answer, 1)
	go func() {
		value, err := cache.Fetch(t.Context(), c, key, load, p)
		answers <- answer{value, err}
	}()
	return answers
}

func wantAnswer(t testing.TB, what string, answers <-chan answer, want string) {
	t.Helper()
	if got := <-answers; got.err != nil || got.value != want {
		t.Errorf("%s: got %q, %v, want %q", what, got.value, got.err, want)
	}
}

func wantFetch(t testing.TB, what string, c *cache.Cache, key string, load cache.Loader[string], p *cache.Policy, want string, from cache.Source) {
	t.Helper()
	got, err := cache.FetchResult(t.Context(), c, key, load, p)
	if err != nil || got.Value != want || got.Source != from {
		t.Errorf("%s: got %q from %v, %v, want %q from %v", what, got.Value, got.Source, err, want, from)
	}
}

func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// wantFetched is wantFetch wherever the value comes from.
func wantFetched(t testing.TB, what string, c *cache.Cache, key string, load cache.Loader[string], want string) {
	t.Helper()
	if got, err := cache.Fetch(t.Context(), c, key, load, nil); err != nil || got != want {
		t.Errorf("%s: got %q, %v, want %q", what, got, err, want)
	}
}
