package limit

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/redisclient"
)

// WhenAway is the answer to attempts that Redis cannot count.
type WhenAway int

// There is no default. Use Refuse if an attempt costs money or security, for example a one-time
// code. Use Allow if refusing would hurt more, for example for a public page.
const (
	Refuse WhenAway = 1 + iota
	Allow
)

// A Config configures a Limiter. All fields except Timeout are required.
type Config struct {
	// Redis stores the counts. Use a server that evicts nothing and persists its data, not the
	// server of the cache. The client must set ContextTimeoutEnabled, so that Timeout ends its
	// calls. Set DialerRetries to 1; otherwise a refused connection is reported as a timeout.
	// Limiters can share a client. They do not close it.
	Redis redis.UniversalClient
	// Prefix is put before the subject to make the key, for example "shop:limit:login:". Each
	// limit needs its own, and no prefix may be the beginning of another one. For example, "limit:"
	// with the subject "ip:1.2.3.4" and "limit:ip:" with the subject "1.2.3.4" make the same key,
	// so the two limits would count together.
	Prefix string
	// Max is the number of attempts that a subject is allowed per window: 1 to 1,000,000,000.
	Max int
	// Window is the length of the window: 1 ms to 366 days.
	Window time.Duration
	// WhenAway is the answer to attempts that Redis cannot count.
	WhenAway WhenAway
	// Timeout limits the duration of a call, including retries of the client: 1 ms to 10 s. Zero
	// means 100 ms.
	Timeout time.Duration
}

// WithDefaults returns a copy of c in which a zero Timeout is replaced by the default.
func (c Config) WithDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 100*time.Millisecond)
	return c
}

// longestWindow keeps twice a window, in microseconds, among the numbers that a script can tell
// apart.
const longestWindow = 366 * 24 * time.Hour

// Validate returns an error that lists every invalid field. Call WithDefaults first.
func (c Config) Validate() error {
	var errs []error
	refuse := func(broken bool, field string, value any, rule string) {
		if broken {
			errs = append(errs, fmt.Errorf("%s is %v: %s", field, value, rule))
		}
	}
	ends, known := redisclient.EndsCalls(c.Redis)
	refuse(c.Redis == nil, "Redis", "nil", "give a client of the instance that keeps state")
	refuse(known && !ends, "Redis", "a client that does not end calls with their context", "set its ContextTimeoutEnabled, and no timeout below 0")
	refuse(c.Prefix == "", "Prefix", "empty", `give one such as "limit:login:"`)
	refuse(c.Max < 1 || c.Max > 1_000_000_000, "Max", c.Max, "it must be from 1 to 1,000,000,000")
	refuse(c.Window < time.Millisecond || c.Window > longestWindow, "Window", c.Window, "it must be from 1 ms to 366 days")
	refuse(c.WhenAway != Refuse && c.WhenAway != Allow, "WhenAway", int(c.WhenAway), "it must be limit.Refuse or limit.Allow")
	refuse(c.Timeout < time.Millisecond || c.Timeout > 10*time.Second, "Timeout", c.Timeout, "it must be from 1 ms to 10 s")
	return errors.Join(errs...)
}
