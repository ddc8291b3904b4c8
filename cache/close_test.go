package cache_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
)

// Once Close has begun, no value is returned from L1, even if Close fails because a loader ignores
// its context: later invalidations no longer arrive.
func TestCloseEmptiesMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channel := "c:" + t.Name()
	c := w.cache(cache.Config{HardTimeout: 100 * time.Millisecond, Timeout: time.Second, Memory: memoryOf(channel)})
	w.beat(channel, "e")
	open(t, c)
	w.keep(c, "k")
	running, stuck := make(chan struct{}), make(chan struct{})
	defer close(stuck)
	fetchBeside(t, c, "stuck", func(context.Context) (string, error) {
		close(running)
		<-stuck
		return "", nil
	}, nil)
	<-running
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	testenv.Eventually(t, "Close to begin", func() bool {
		_, err := cache.Get[string](t.Context(), c, "other")
		return errors.Is(err, cache.ErrClosed)
	})
	w.commit("new", "k")
	_, err := cache.Fetch(t.Context(), c, "k", w.db.read, nil)
	wantError(t, "while it closes", err, cache.ErrClosed)
	if err := <-closed; err == nil {
		t.Error("Close has not waited for the loader")
	}
	_, err = cache.Fetch(t.Context(), c, "k", w.db.read, nil)
	wantError(t, "after it has failed", err, cache.ErrClosed)
	wantError(t, "Healthy", c.Healthy(), cache.ErrClosed)
}

// Every call that returns an error returns ErrClosed after Close. A lease can still be released.
func TestClosedCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cache(cache.Config{})
	wantFetch(t, "first", c, "k", w.db.read, nil, "old", cache.FromLoader)
	lease, err := c.Lease(t.Context(), "leased", nil)
	testenv.Must(t, err)
	kept, err := c.Lease(t.Context(), "kept", nil)
	testenv.Must(t, err)
	testenv.Must(t, c.Close())
	many := func(context.Context, []string) (map[string]string, error) { return nil, nil }
	for name, call := range map[string]func() error{
		"Get":                  func() error { _, err := cache.Get[string](t.Context(), c, "k"); return err },
		"Fetch":                func() error { _, err := cache.Fetch(t.Context(), c, "k", w.db.read, nil); return err },
		"FetchMany":            func() error { _, err := cache.FetchMany(t.Context(), c, []string{"k"}, many, nil); return err },
		"FetchMany of no keys": func() error { _, err := cache.FetchMany(t.Context(), c, nil, many, nil); return err },
		"Has":                  func() error { _, err := c.Has(t.Context(), "k"); return err },
		"Expire":               func() error { _, err := c.Expire(t.Context(), "k", time.Hour); return err },
		"Lease":                func() error { _, err := c.Lease(t.Context(), "k", nil); return err },
		"Set":                  func() error { return cache.Set(t.Context(), lease, "v") },
		"Delete":               func() error { return c.Delete(t.Context(), "k") },
		"DeleteTag":            func() error { return c.DeleteTag(t.Context(), "k") },
		"Healthy":              c.Healthy,
	} {
		wantError(t, name, call(), cache.ErrClosed)
	}
	kept.Release(t.Context())
	for _, key := range []string{"lock:fill:{leased}", "lock:fill:{kept}", "leased"} {
		if text := w.stored(key); text != "" {
			t.Errorf("%s holds %q", key, text)
		}
	}
}

// A subscription in the middle of a handshake with a Redis that does not reply is not a loader:
// Close does not fail because of it.
func TestCloseBesideASilentRedis(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	asked := make(chan net.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = conn.Read(make([]byte, 1)) // the handshake has begun
		}
		asked <- conn
	}()
	client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute, MaxRetries: -1})
	c, err := cache.New(cache.Config{Redis: client, HardTimeout: 50 * time.Millisecond, Timeout: 50 * time.Millisecond, Memory: deafMemory("c:" + t.Name())})
	testenv.Must(t, err)
	conn := <-asked
	testenv.Must(t, c.Close())
	testenv.Must(t, c.Close())
	if conn != nil {
		_ = conn.Close() // which ends what was left behind
	}
	_ = listener.Close()
	_ = client.Close()
}

// A lingering Checker answers when its context ends.
type lingering struct{ asked chan struct{} }

func (l lingering) Settled(ctx context.Context) (bool, time.Duration, error) {
	close(l.asked)
	<-ctx.Done()
	return false, 0, ctx.Err()
}

// Close ends the contexts of Checkers: their callers return ErrClosed immediately.
func TestCloseEndsCheckers(t *testing.T) {
	t.Parallel()
	db := &database{value: "old"}
	for name, call := range map[string]func(*testing.T, *cache.Cache, cache.Checker) error{
		"Fetch": func(t *testing.T, c *cache.Cache, check cache.Checker) error {
			_, err := cache.Fetch(t.Context(), c, "k", db.read, cache.Moderate.After(check))
			return err
		},
		"FetchMany": func(t *testing.T, c *cache.Cache, check cache.Checker) error {
			_, err := cache.FetchMany(t.Context(), c, []string{"k"}, func(context.Context, []string) (map[string]string, error) { return nil, nil }, cache.Moderate.After(check))
			return err
		},
		"GetAfter": func(t *testing.T, c *cache.Cache, check cache.Checker) error {
			_, err := cache.GetAfter[string](t.Context(), c, "k", check)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCache(t, cache.Config{})
				check, ended := lingering{make(chan struct{})}, make(chan error, 1)
				go func() { ended <- call(t, c, check) }()
				<-check.asked
				begun := time.Now()
				testenv.Must(t, c.Close())
				wantError(t, name, <-ended, cache.ErrClosed)
				if waited := time.Since(begun); waited > 0 {
					t.Errorf("came back after %v", waited)
				}
			})
		})
	}
}
