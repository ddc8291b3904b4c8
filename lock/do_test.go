package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locktest"
)

// Do returns the error of its function, and a loss that the function did not return.
func TestDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.Locker(lock.Config{})
	refused := errors.New("no")
	wantError(t, "an error", l.Do(t.Context(), "a", func(context.Context, *lock.Held) error { return refused }), refused)
	must(t, l.Do(t.Context(), "a", func(context.Context, *lock.Held) error { return nil }))
	err := l.Do(t.Context(), "a", func(context.Context, *lock.Held) error { return w.redis.Del(t.Context(), key).Err() })
	wantError(t, "a loss that nobody saw", err, lock.ErrLost)
}

// Do waits for a section that ignores the end of its context. The section loses its lock, and Do
// logs it.
func TestStubbornSection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	said := &locktest.Log{}
	l := w.Locker(lock.Config{TTL: short, Logger: slog.New(slog.NewTextHandler(said, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	err := l.Do(ctx, "a", func(section context.Context, held *lock.Held) error {
		cancel()
		<-section.Done()
		testenv.Eventually(t, "the lease to end", func() bool { return w.redis.Exists(t.Context(), key).Val() == 0 })
		testenv.Eventually(t, "a line of the log", func() bool { return strings.Contains(said.String(), "lock=a error=\"context canceled\"") })
		return nil
	})
	wantError(t, "the section", err, lock.ErrLost)
	if text := said.String(); strings.Count(text, "a section continues after its context has ended") != 1 {
		t.Errorf("the log says %q", text)
	}
	if s := l.Statistics(); s.Overruns != 1 || s.Lost != 1 {
		t.Errorf("%+v", s)
	}
}

// The error of a bad Config names every field.
func TestConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	redlock := func(clients ...*redis.Client) lock.Redlock { return lock.Redlock{Clients: clients} }
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true})
	defer sentinel.Close()
	for _, test := range []struct {
		config lock.Config
		says   []string
	}{
		{lock.Config{}, []string{"Backend is nil: give lock.Redis{Client: ...}, lock.Redlock{Clients: ...} or, of package lock/zk, zk.Backend{Servers: ...}"}},
		{lock.Config{Backend: lock.Redis{}}, []string{"Redis.Client is nil: give a client of go-redis"}},
		{lock.Config{Backend: lock.Redis{Client: w.redis, Prefix: "a{"}}, []string{`Redis.Prefix is "a{": it must not have braces`}},
		{lock.Config{Backend: lock.Redis{Client: testenv.Redis(t).Client}}, []string{"Redis.Client ignores the deadlines of contexts: set ContextTimeoutEnabled in its options"}},
		{lock.Config{Backend: lock.Redis{Client: testenv.Client(t, "redis://127.0.0.1:1", func(o *redis.Options) { o.ReadTimeout = -2 })}}, []string{"and no timeout below 0"}},
		{lock.Config{Backend: redlock(w.redis, w.redis)}, []string{"Redlock.Clients has 2: it must be an odd number of at least three"}},
		{lock.Config{Backend: redlock(w.redis, w.redis, w.redis, w.redis)}, []string{"Redlock.Clients has 4"}},
		{lock.Config{Backend: redlock(w.redis, nil, nil)}, []string{"Redlock.Clients[1] is nil"}},
		{lock.Config{Backend: redlock(w.redis, testenv.Redis(t).Client, nil)}, []string{"Redlock.Clients[1] ignores the deadlines of contexts"}},
		{lock.Config{Backend: redlock(w.redis, testenv.Client(t, "redis://127.0.0.1:1"), w.redis)}, []string{"Redlock.Clients[0] and [2] are of the same server, " + w.addr}},
		{lock.Config{Backend: redlock(sentinel, nil, nil)}, []string{"Redlock.Clients[0] follows Sentinel"}},
		{lock.Config{Backend: lock.Redlock{Prefix: "}"}}, []string{`Redlock.Prefix is "}": it must not have braces`}},
		{
			lock.Config{Backend: redlock(w.redis, testenv.Client(t, "redis://127.0.0.1:1"), testenv.Client(t, "redis://127.0.0.1:2")), Margin: 100 * time.Millisecond},
			[]string{"Margin is 100ms: Redlock needs 102ms at least"},
		},
		{
			lock.Config{TTL: time.Millisecond, Margin: time.Second, Timeout: time.Second, MintWait: 1500 * time.Millisecond, Holder: strings.Repeat("x", 256)},
			[]string{
				"TTL is 1ms: it must be from 100ms to 24h", "Margin is 1s: it must be positive, and below half of TTL",
				"Timeout is 1s: it must be from 1ms to a third of TTL", "MintWait is 1.5s: it must be in whole seconds, and at least one",
				"Holder is of 256 bytes: it must have at most 255",
			},
		},
	} {
		_, err := lock.New(test.config)
		for _, says := range test.says {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: %v, wanted %s", test.config, err, says)
			}
		}
	}
	full := lock.Config{}.WithDefaults()
	if full.TTL != 10*time.Second || full.Margin != time.Second || full.Timeout != 200*time.Millisecond || full.MintWait != 12*time.Second || full.Holder == "" || full.Logger == nil {
		t.Errorf("defaults: %+v", full)
	}
}
