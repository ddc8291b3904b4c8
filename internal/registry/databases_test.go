package registry_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/operate"
	"github.com/unstale/unstale/internal/registry"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/redisurl"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A redisPage is the page of databases in a Redis.
type redisPage struct {
	t     *testing.T
	board *keyspace.Board
	redis *redis.Client
}

func newRedisPage(t *testing.T) *redisPage {
	t.Helper()
	url := testenv.OwnRedis(t).URL()
	at, err := redisurl.Parse(url, false)
	if err != nil {
		t.Fatal(err)
	}
	k, err := keyspace.Open(keyspace.Options{Redis: at, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	one, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(one)
	t.Cleanup(func() { _, _ = k.Close(), c.Close() })
	return &redisPage{t, k.Board, c}
}

// post publishes a database, whose journal ends with an ID, and returns the kinds of its conflicts.
func (p *redisPage) post(source, server string, last uint64, names ...string) (kinds []operate.ConflictKind) {
	p.t.Helper()
	d := registry.Database{Source: source, Server: server, Schema: "shop", Names: names}
	list, _, err := registry.PostDatabase(p.t.Context(), p.board, d, func(context.Context) (uint64, error) { return last, nil })
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range list {
		kinds = append(kinds, c.Kind)
		if c.Text == "" || c.Cure == "" {
			p.t.Errorf("%+v", c)
		}
	}
	return kinds
}

// age makes all records older than workers that live leave them.
func (p *redisPage) age() {
	p.t.Helper()
	for field, text := range p.redis.HGetAll(p.t.Context(), "unstale:sources").Val() {
		before, body, _ := strings.Cut(text, " ")
		at, err := strconv.ParseInt(before, 10, 64)
		if err == nil {
			err = p.redis.HSet(p.t.Context(), "unstale:sources", field, strconv.FormatInt(at-60e6, 10)+" "+body).Err()
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *redisPage) want(got []operate.ConflictKind, want ...operate.ConflictKind) {
	p.t.Helper()
	if !slices.Equal(got, want) {
		p.t.Errorf("%q, want %q", got, want)
	}
}

// Databases conflict if workers serve both and they have names or the ID in common.
func TestTwoDatabases(t *testing.T) {
	t.Parallel()
	p := newRedisPage(t)
	p.want(p.post("one", "a", 7, "shop:product:*"))
	p.want(p.post("two", "c", 1, "other:*", `shop:\*`))
	p.want(p.post("two", "c", 1, "other:*", "shop:*:42"), operate.ConflictNames)
	p.want(p.post("one", "a", 7, "shop:product:*"), operate.ConflictNames)
	// a copy is not a restore
	p.want(p.post("one", "b", 3, "shop:product:*"), operate.ConflictID, operate.ConflictNames)
	list, known, err := registry.Conflicts(t.Context(), p.board, "two")
	if err != nil || !known || len(list) != 2 {
		t.Errorf("%+v, %v, %v", list, known, err)
	}
	p.age()
	p.want(p.post("two", "c", 1, "other:*", "shop:*:42"))
	if list, known, err := registry.Conflicts(t.Context(), p.board, "one"); err != nil || known || len(list) > 0 {
		t.Errorf("%+v, %v, %v", list, known, err)
	}
}

// A journal that ends before the ID that it had is that of a restored database, on this server or
// on another one. It stays so, also when it grows, until the operator ends it.
func TestRestored(t *testing.T) {
	t.Parallel()
	p := newRedisPage(t)
	p.want(p.post("one", "a", 7))
	p.want(p.post("one", "a", 0)) // retention has removed all
	p.want(p.post("one", "a", 9))
	p.want(p.post("one", "a", 8), operate.ConflictRestored)
	p.want(p.post("one", "a", 12), operate.ConflictRestored)
	if list, _, err := registry.Conflicts(t.Context(), p.board, "one"); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	forget := func() {
		t.Helper()
		if err := registry.ForgetDatabases(t.Context(), p.board, "one"); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	p.want(p.post("one", "a", 5))
	p.want(p.post("one", "a", 6))
	p.age()
	p.want(p.post("one", "b", 5), operate.ConflictRestored)
	forget()
	p.want(p.post("one", "b", 5))
}
