package status_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/redisurl"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A redisPage is the page of databases in a Redis.
type redisPage struct {
	t      *testing.T
	hashes *keyspace.StatusHashes
	redis  *redis.Client
	served map[string]string // the field of the database that each worker serves
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
	return &redisPage{t, k.StatusHashes, c, map[string]string{}}
}

// post publishes the database of a worker of a server, whose journal ends with an ID, and returns
// the kinds of its conflicts.
func (p *redisPage) post(source, server string, last uint64, names ...string) (kinds []store.ConflictKind) {
	p.t.Helper()
	return p.postAs("worker of "+server+" and "+source, source, server, last, names...)
}

// postAs is post of a worker that may serve several databases, one after the other.
func (p *redisPage) postAs(worker, source, server string, last uint64, names ...string) (kinds []store.ConflictKind) {
	p.t.Helper()
	d := status.Database{Source: source, Server: server, Schema: "shop", Names: names}
	list, _, err := status.PostDatabase(p.t.Context(), p.hashes, d, p.served[worker], journalThatEndsWith(last))
	if err != nil {
		p.t.Fatal(err)
	}
	p.served[worker] = d.Field()
	for _, c := range list {
		kinds = append(kinds, c.Kind)
		if c.Text == "" || c.Cure == "" {
			p.t.Errorf("%+v", c)
		}
	}
	return kinds
}

// journalThatEndsWith is store.Lost of a journal with all batches up to an ID.
func journalThatEndsWith(last uint64) func(context.Context, store.Mark) (uint64, store.Mark, error) {
	return func(_ context.Context, had store.Mark) (lost uint64, newest store.Mark, err error) {
		if 0 < last && last < had.ID {
			lost = had.ID
		}
		return lost, store.Mark{ID: last}, nil
	}
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

func (p *redisPage) want(got []store.ConflictKind, want ...store.ConflictKind) {
	p.t.Helper()
	if !slices.Equal(got, want) {
		p.t.Errorf("%q, want %q", got, want)
	}
}

// Databases conflict if workers serve both and they have the ID in common. They may share names.
func TestTwoDatabases(t *testing.T) {
	t.Parallel()
	p := newRedisPage(t)
	p.want(p.post("one", "a", 7, "shop:product:*"))
	p.want(p.post("two", "c", 1, "other:*", "shop:*:42"))
	p.want(p.post("one", "a", 7, "shop:product:*"))
	// A copy is not a restore: workers of the original go on.
	p.want(p.post("one", "b", 3, "shop:product:*"), store.ConflictRestored)
	p.want(p.post("one", "a", 9, "shop:product:*"), store.ConflictID)
	p.want(p.post("one", "b", 4, "shop:product:*"), store.ConflictID)
	list, known, err := status.Conflicts(t.Context(), p.hashes, "two")
	if err != nil || !known || len(list) != 0 {
		t.Errorf("%+v, %v, %v", list, known, err)
	}
	p.age()
	p.want(p.post("two", "c", 1, "other:*", "shop:*:42"))
	if list, known, err := status.Conflicts(t.Context(), p.hashes, "one"); err != nil || known || len(list) > 0 {
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
	p.want(p.post("one", "a", 8), store.ConflictRestored)
	p.want(p.post("one", "a", 12), store.ConflictRestored)
	if list, _, err := status.Conflicts(t.Context(), p.hashes, "one"); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	forget := func() {
		t.Helper()
		if err := status.ForgetDatabases(t.Context(), p.hashes, "one"); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	p.want(p.post("one", "a", 5))
	p.want(p.post("one", "a", 6))
	p.age()
	p.want(p.post("one", "b", 5), store.ConflictRestored)
	forget()
	p.want(p.post("one", "b", 5))
}

// A worker that moves to another server takes its record along: a server that has everything is no
// conflict, and one that lacks a batch is older than Redis, at once and later.
func TestFailover(t *testing.T) {
	t.Parallel()
	p := newRedisPage(t)
	p.want(p.postAs("web-1", "one", "a", 7))
	p.want(p.postAs("web-2", "one", "a", 8))
	p.want(p.postAs("web-1", "one", "b", 8))
	p.want(p.postAs("web-2", "one", "a", 8), store.ConflictID) // it is late
	p.want(p.postAs("web-2", "one", "b", 9))
	p.want(p.postAs("web-1", "one", "b", 9))
	p.want(p.postAs("web-3", "one", "c", 9)) // a new worker, since the others have ended
	p.want(p.postAs("web-3", "one", "c", 12))
	p.want(p.postAs("web-3", "one", "d", 10), store.ConflictRestored)
	p.want(p.postAs("web-3", "one", "d", 20), store.ConflictRestored)
	p.age()
	p.want(p.postAs("web-3", "one", "d", 21), store.ConflictRestored)
}

// A worker that starts on a server that lacks a batch reports a restore, unless workers of the other
// server go on. Nothing of that is left when they have ended.
func TestCopy(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"the original is first": "a", "the copy is first": "b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRedisPage(t)
			p.want(p.post("one", "a", 7))
			p.want(p.post("one", "b", 5), store.ConflictRestored)
			p.want(p.post("one", "a", 8), store.ConflictID)
			p.want(p.post("one", first, 9), store.ConflictID)
			p.age()
			p.want(p.post("one", "a", 9))
		})
	}
	p := newRedisPage(t)
	p.want(p.post("one", "a", 7))
	p.want(p.post("one", "b", 5), store.ConflictRestored)
	p.age()
	p.want(p.post("one", "b", 9), store.ConflictRestored)
}
