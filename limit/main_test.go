package limit_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patient is a Timeout that a busy machine does not reach.
const patient = 10 * time.Second

// clientAt returns a client that ends calls with their context, and closes with the test.
func clientAt(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	testenv.Must(t, err)
	o.ContextTimeoutEnabled = true
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newLimiter makes one that refuses while Redis is away, unless the config says otherwise.
func newLimiter(t testing.TB, c limit.Config) *limit.Limiter {
	t.Helper()
	if c.Prefix == "" {
		c.Prefix = "zahraah:limit:"
	}
	if c.WhenAway == 0 {
		c.WhenAway = limit.Refuse
	}
	if c.Timeout == 0 {
		c.Timeout = patient
	}
	l, err := limit.New(c)
	testenv.Must(t, err)
	return l
}

// take wants Redis to decide.
func take(t testing.TB, l *limit.Limiter, subject string) limit.Decision {
	t.Helper()
	d, err := l.Take(t.Context(), subject)
	testenv.Must(t, err)
	testenv.Must(t, d.Unsure)
	return d
}

// forms are a limit of each form: every attempt with its time, and two counters.
var forms = map[string]int{"exact": 3, "counted": 21}
