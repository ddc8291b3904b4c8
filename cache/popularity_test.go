package cache

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A popularityTest calls report itself, at the times that it sets.
type popularityTest struct {
	*testing.T
	*Cache
	client *redis.Client
	log    bytes.Buffer
}

func newPopularityTest(t *testing.T, url string) *popularityTest {
	t.Helper()
	p := &popularityTest{T: t}
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled = true
	p.client = redis.NewClient(o)
	t.Cleanup(func() { _ = p.client.Close() })
	config := Config{Redis: p.client, Timeout: 5 * time.Second, Prefix: "shop:", Popularity: true, Logger: slog.New(slog.NewTextHandler(&p.log, nil))}
	if p.Cache, err = New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// read reports n reads of a key at a time of Redis, in hours since the start of a set.
func (p *popularityTest) read(key string, n int, hours float64) {
	p.at(hours)
	for range n {
		p.popularity.countKey(key)
	}
	p.popularity.sendCounts(p.Context())
}

func (p *popularityTest) at(hours float64) {
	const set = 128 * time.Hour
	at := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).Truncate(set).Add(time.Duration(hours * float64(time.Hour)))
	p.redis.clock.base.Store(at.UnixMicro() - time.Since(p.redis.clock.begun).Microseconds())
}

func (p *popularityTest) want(what string, n int, want ...string) {
	p.Helper()
	got, err := p.Popular(p.Context(), n)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		p.Errorf("%s: got %v, %v, want %v", what, got, err, want)
	}
}

// A read counts half as much after an hour, also across the change of sets.
func TestPopularityDecays(t *testing.T) {
	t.Parallel()
	p := newPopularityTest(t, testenv.Redis(t).URL)
	p.redis.clock.until.Store(int64(time.Hour)) // it asks no server
	p.read("old", 100, 125)
	p.read("new", 30, 126)
	p.want("after an hour", 9, "old", "new")
	p.read("new", 9, 127.9)
	p.want("after three", 9, "new", "old")
	p.read("next", 5, 128.1) // in another set
	p.want("then", 9, "new", "old", "next")
	p.read("next", 10, 130)
	p.want("later", 2, "next", "new")
	p.read("other", 1, 500)
	p.want("long after", 9, "other")
}

// A million distinct keys make neither the process nor Redis keep more, and hide no hot key.
func TestPopularityIsBounded(t *testing.T) {
	t.Parallel()
	p := newPopularityTest(t, testenv.OwnRedis(t).URL())
	long := strings.Repeat("x", protocol.MaxPopularKey)
	for i := range 200_000 {
		p.popularity.countKey(fmt.Sprint("product:", i, long)[:protocol.MaxPopularKey])
		if i%100 == 0 {
			p.popularity.countKey("hot")
			p.popularity.countKey(long + "x")
		}
		p.popularity.mu.Lock() // the cache reports once per minute
		counted := len(p.popularity.counts)
		p.popularity.mu.Unlock()
		if counted > popularCounted {
			t.Fatalf("%d keys are counted", counted)
		}
		if i%10_000 == 9_999 {
			p.popularity.sendCounts(t.Context())
		}
	}
	keys, err := p.client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) > 2 { // two if a set changes meanwhile
		t.Fatalf("%v, %v", keys, err)
	}
	for _, key := range keys {
		members, bytes, life := p.client.ZCard(t.Context(), key).Val(), p.client.MemoryUsage(t.Context(), key, 0).Val(), p.client.PTTL(t.Context(), key).Val()
		if members > protocol.MostPopular || bytes > 3<<20 || life <= 0 || life > protocol.PopularLife {
			t.Errorf("%s has %d keys, %d bytes and a TTL of %v", key, members, bytes, life)
		}
	}
	p.want("the hottest", 1, "hot")
}

// A refusal is logged once, with the permission that is missing, and changes nothing else.
func TestPopularityIsRefused(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	if err := admin.Do(t.Context(), "acl", "setuser", "reader", "on", ">secret", "~*", "+@all", "-zincrby").Err(); err != nil {
		t.Fatal(err)
	}
	p := newPopularityTest(t, "redis://reader:secret@"+server.Addr()+"/0")
	for range 3 {
		p.popularity.countKey("k")
		p.popularity.sendCounts(t.Context())
	}
	if log := p.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "popular keys are not reported") || !strings.Contains(log, popularRule) {
		t.Error(log)
	}
	if err := p.Healthy(); err != nil {
		t.Error(err)
	}
}
