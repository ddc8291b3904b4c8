package limit

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/redisclient"
)

// WhenAway says what becomes of attempts that Redis cannot count.
type WhenAway int

// There is no default: for a one-time code that costs money it is Refuse, for a page that anybody
// may read it is Allow.
const (
	Refuse WhenAway = 1 + iota
	Allow
)

// A Config is what a Limiter needs to know. Fields without a default are required.
type Config struct {
	// Redis is where counts are kept: an instance that evicts nothing and keeps what it is told,
	// which is not the cache's. The client must have ContextTimeoutEnabled, so that Timeout ends
	// its calls. With DialerRetries of 1 Decision.Unsure tells why a connection fails. Limiters may
	// share a client; it stays open.
	Redis redis.UniversalClient
	// Prefix begins the name of each subject's key: "zahraah:limit:login:". Each limit needs one of
	// its own, and no prefix of the same Redis may begin with another one: "limit:" with the
	// subject "ip:1.2.3.4" is the key of "limit:ip:" with the subject "1.2.3.4", and both would
	// count together.
	Prefix string
	// Max is how many attempts of a subject may be in a window: 1 to 1,000,000,000.
	Max int
	// Window is how long an attempt counts: 1 ms to 366 days.
	Window time.Duration
	// WhenAway says what becomes of attempts that Redis cannot count.
	WhenAway WhenAway
	// Timeout bounds an attempt, with the client's retries: 1 ms to 10 s. Zero: 100 ms.
	Timeout time.Duration
}

// WithDefaults returns a copy in which zero values are replaced by the defaults.
func (c Config) WithDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 100 * time.Millisecond
	}
	return c
}

// longestWindow keeps twice a window, in microseconds, among the numbers that a script can tell
// apart.
const longestWindow = 366 * 24 * time.Hour

// Validate returns an error for each field at fault, joined. Apply WithDefaults first.
func (c Config) Validate() error {
	var errs []error
	refuse := func(field string, value any, rule string) {
		errs = append(errs, fmt.Errorf("%s is %v: %s", field, value, rule))
	}
	if c.Redis == nil {
		refuse("Redis", "nil", "give a client of the instance that keeps state")
	} else if !endsCalls(c.Redis) {
		refuse("Redis", "a client that does not end calls with their context", "set its ContextTimeoutEnabled, and no timeout below 0")
	}
	if c.Prefix == "" {
		refuse("Prefix", "empty", `give one such as "limit:login:"`)
	}
	if c.Max < 1 || c.Max > 1_000_000_000 {
		refuse("Max", c.Max, "it must be from 1 to 1,000,000,000")
	}
	if c.Window < time.Millisecond || c.Window > longestWindow {
		refuse("Window", c.Window, "it must be from 1 ms to 366 days")
	}
	if c.WhenAway != Refuse && c.WhenAway != Allow {
		refuse("WhenAway", int(c.WhenAway), "it must be limit.Refuse or limit.Allow")
	}
	if c.Timeout < time.Millisecond || c.Timeout > 10*time.Second {
		refuse("Timeout", c.Timeout, "it must be from 1 ms to 10 s")
	}
	return errors.Join(errs...)
}

// endsCalls reports whether a client ends calls with their context. Of clients that it does not
// know it thinks well.
func endsCalls(client redis.UniversalClient) bool {
	ends, known := redisclient.EndsCalls(client)
	return ends || !known
}
