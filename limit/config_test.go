package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/limit"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	deaf := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = deaf.Close() }()
	for want, change := range map[string]func(*limit.Config){
		"": func(*limit.Config) {},
		"Redis is nil: give a client of the instance that keeps state": func(c *limit.Config) { c.Redis = nil },
		"Redis is a client that does not end calls with their context": func(c *limit.Config) { c.Redis = deaf },
		`Prefix is empty: give one such as "limit:login:"`:             func(c *limit.Config) { c.Prefix = "" },
		"Max is 0: it must be from 1 to 1,000,000,000":                 func(c *limit.Config) { c.Max = 0 },
		"Max is 1000000001": func(c *limit.Config) { c.Max = 1_000_000_001 },
		"Window is 999.999µs: it must be from 1 ms to 366 days": func(c *limit.Config) { c.Window = time.Millisecond - 1 },
		"Window is 8785h0m0s": func(c *limit.Config) { c.Window = 8785 * time.Hour },
		"WhenAway is 0: it must be limit.Refuse or limit.Allow":      func(c *limit.Config) { c.WhenAway = 0 },
		"Timeout is 1µs: it must be from 1 ms to 10 s":               func(c *limit.Config) { c.Timeout = time.Microsecond },
		"Timeout is 10.0001s":                                        func(c *limit.Config) { c.Timeout = 10*time.Second + 100*time.Microsecond },
		"Max is 0: it must be from 1 to 1,000,000,000\nWindow is 0s": func(c *limit.Config) { c.Max, c.Window = 0, 0 },
	} {
		c := limit.Config{Redis: client, Prefix: "limit:", Max: 5, Window: time.Hour, WhenAway: limit.Allow}
		change(&c)
		switch _, err := limit.New(c); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	l := newLimiter(t, limit.Config{Redis: client, Max: 5, Window: time.Hour})
	for _, subject := range []string{"", strings.Repeat("x", 513)} {
		if _, err := l.Take(t.Context(), subject); err == nil || !strings.Contains(err.Error(), "wanted 1 to 512") {
			t.Errorf("%v", err)
		}
		if err := l.Forget(t.Context(), subject); err == nil || !strings.Contains(err.Error(), "wanted 1 to 512") {
			t.Errorf("%v", err)
		}
	}
	for _, id := range []string{"", strings.Repeat("x", 65)} {
		if _, err := l.TakeOnce(t.Context(), "s", id); err == nil || !strings.Contains(err.Error(), "wanted 1 to 64") {
			t.Errorf("%v", err)
		}
	}
}
