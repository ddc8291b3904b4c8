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
		"":                      func(*limit.Config) {},
		"set Config.Redis":      func(c *limit.Config) { c.Redis = nil },
		"ContextTimeoutEnabled": func(c *limit.Config) { c.Redis = deaf },
		"set Config.Prefix":     func(c *limit.Config) { c.Prefix = "" },
		"a limit of 0":          func(c *limit.Config) { c.Max = 0 },
		"a limit of 1000000001": func(c *limit.Config) { c.Max = 1_000_000_001 },
		"a window of 999.999µs": func(c *limit.Config) { c.Window = time.Millisecond - 1 },
		"a window of 8785h0m0s": func(c *limit.Config) { c.Window = 8785 * time.Hour },
		"set Config.WhenAway":   func(c *limit.Config) { c.WhenAway = 0 },
		"a timeout of 1µs":      func(c *limit.Config) { c.Timeout = time.Microsecond },
		"a timeout of 10.0001s": func(c *limit.Config) { c.Timeout = 10*time.Second + 100*time.Microsecond },
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
