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

// There is no default: for a one-time code that costs money it is Refuse, for a page that anybody may read it is Allow.
const (
	Refuse WhenAway = 1 + iota
	Allow
)

// A Config is what a Limiter needs to know. Fields without a default are required.
type Config struct {
	// Redis is where counts are kept: an instance that evicts nothing and keeps what it is told, which is not the cache's. The
	// client must have ContextTimeoutEnabled, so that Timeout ends its calls. Limiters may share a client; it stays open.
	Redis redis.UniversalClient
	// Prefix begins the name of each subject's key: "zahraah:limit:login:". Two limits of one subject need two of them.
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

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 100 * time.Millisecond
	}
	return c
}

// longestWindow keeps twice a window, in microseconds, among the numbers that a script can tell apart.
const longestWindow = 366 * 24 * time.Hour

func (c Config) validate() error {
	switch {
	case c.Redis == nil:
		return errors.New("no Redis: set Config.Redis to a client of the instance that keeps state")
	case !endsCalls(c.Redis):
		return errors.New("the client of Redis does not end calls with their context: set its ContextTimeoutEnabled, and no timeout below 0")
	case c.Prefix == "":
		return errors.New(`no prefix: set Config.Prefix, such as "limit:login:"`)
	case c.Max < 1 || c.Max > 1_000_000_000:
		return fmt.Errorf("a limit of %d: wanted 1 to 1,000,000,000", c.Max)
	case c.Window < time.Millisecond || c.Window > longestWindow:
		return fmt.Errorf("a window of %v: wanted 1 ms to 366 days", c.Window)
	case c.WhenAway != Refuse && c.WhenAway != Allow:
		return errors.New("what happens while Redis is away is not said: set Config.WhenAway to limit.Refuse or limit.Allow")
	case c.Timeout < time.Millisecond || c.Timeout > 10*time.Second:
		return fmt.Errorf("a timeout of %v: wanted 1 ms to 10 s", c.Timeout)
	}
	return nil
}

// endsCalls reports whether a client ends calls with their context. Of clients that it does not know it thinks well.
func endsCalls(client redis.UniversalClient) bool {
	ends, known := redisclient.EndsCalls(client)
	return ends || !known
}
