package limit_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/limit"
)

// setAhead makes what is counted under a key look as if it came later: it and its expiry lie ahead
// of the clock.
func setAhead(t *testing.T, client *redis.Client, key string, by time.Duration) {
	t.Helper()
	if client.Type(t.Context(), key).Val() == "zset" {
		members, err := client.ZRangeWithScores(t.Context(), key, 0, -1).Result()
		testenv.Must(t, err)
		for _, m := range members {
			m.Score += float64(by.Microseconds())
			testenv.Must(t, client.ZAdd(t.Context(), key, m).Err())
		}
	} else {
		value, err := client.Get(t.Context(), key).Bytes()
		testenv.Must(t, err)
		began := math.Float64frombits(binary.BigEndian.Uint64(value)) + float64(by.Microseconds())
		binary.BigEndian.PutUint64(value, math.Float64bits(began))
		testenv.Must(t, client.Set(t.Context(), key, value, 0).Err())
	}
	testenv.Must(t, client.PExpire(t.Context(), key, by).Err())
}

// A lossy connection loses the first answer that it gets while armed, and ends.
type lossy struct {
	net.Conn
	armed *atomic.Bool
}

func (c lossy) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.armed.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// The client sends an attempt again whose answer got lost, and it counts once.
func TestAnswerGetsLost(t *testing.T) {
	t.Parallel()
	for form, most := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			o, err := redis.ParseURL(testenv.Redis(t).URL)
			testenv.Must(t, err)
			var armed atomic.Bool
			o.ContextTimeoutEnabled = true
			o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return lossy{conn, &armed}, err
			}
			client := redis.NewClient(o)
			defer func() { _ = client.Close() }()
			l := newLimiter(t, limit.Config{Redis: client, Max: most, Window: time.Hour})
			take(t, l, "s") // the script is there
			armed.Store(true)
			if d := take(t, l, "s"); !d.Allowed || d.Remaining != most-2 || armed.Load() {
				t.Errorf("%+v", d)
			}
		})
	}
}

// While Redis is away the answer is the one that was chosen, within a bounded time, and Take goes
// on when it is back.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	for name, choice := range map[string]limit.WhenAway{"refuse": limit.Refuse, "allow": limit.Allow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.OwnRedis(t)
			link, err := servers.NewLink("redis", server.Addr())
			testenv.Must(t, err)
			defer link.Close()
			l := newLimiter(t, limit.Config{Redis: clientAt(t, "redis://"+link.Addr()), Max: 5, Window: time.Hour, WhenAway: choice, Timeout: 50 * time.Millisecond})
			testenv.Must(t, link.Swallow())
			d, err := l.Take(t.Context(), "s")
			testenv.Must(t, err)
			if d.Allowed != (choice == limit.Allow) || d.Unsure == nil || d.Remaining != 0 || l.Statistics().Unsure != 1 {
				t.Errorf("%+v", d)
			}
			if err := l.Forget(t.Context(), "s"); err == nil {
				t.Error("it has forgotten without Redis")
			}
			link.Calm(t.Context())
			testenv.Eventually(t, "Redis decides again", func() bool {
				d, err := l.Take(t.Context(), "other")
				testenv.Must(t, err)
				return d.Unsure == nil
			})
		})
	}
}

// A caller that has gone gets its context's error.
func TestCallerIsGone(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	link, err := servers.NewLink("redis", server.Addr())
	testenv.Must(t, err)
	defer link.Close()
	l := newLimiter(t, limit.Config{Redis: clientAt(t, "redis://"+link.Addr()), Max: 5, Window: time.Hour})
	testenv.Must(t, link.Swallow())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for range 2 { // before it has begun, too
		if _, err := l.Take(ctx, "s"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
	if got := l.Statistics(); got != (limit.Statistics{}) {
		t.Errorf("%+v", got)
	}
}

// Redis says what an account may not do.
func TestRightIsMissing(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, "--user", "app", "on", ">change-me", "-@all", "+ping", "+evalsha", "+eval", "~zahraah:limit:*")
	l := newLimiter(t, limit.Config{Redis: clientAt(t, "redis://app:change-me@"+server.Addr()), Max: 5, Window: time.Hour})
	d, err := l.Take(t.Context(), "s")
	testenv.Must(t, err)
	if d.Allowed || d.Unsure == nil || !strings.Contains(d.Unsure.Error(), "limit: Redis cannot count: ") {
		t.Errorf("%+v", d)
	}
}
