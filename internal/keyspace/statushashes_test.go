package keyspace_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// alive reads what a source has published at one server.
func alive(t *testing.T, c *redis.Client, tag, source string) protocol.Alive {
	t.Helper()
	text, err := c.HGet(t.Context(), protocol.AliveKey(tag), source).Result()
	if err != nil {
		t.Fatalf("%s of %s: %v", protocol.AliveKey(tag), source, err)
	}
	a, err := protocol.ParseAlive(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Two sources share one Redis: each has its field, with the time of Redis. A source without workers
// goes.
func TestStatusAlive(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k, c := open(t, keyspace.Options{Redis: at(server.URL())}), testenv.Client(t, server.URL())
	b := k.StatusHashes
	gone := protocol.Alive{Time: int64(micros(t, c)) - 61e6}
	if err := c.HSet(t.Context(), "unstale:alive", "gone", gone.String(), "later", `{"a later version": true}`).Err(); err != nil {
		t.Fatal(err)
	}
	before := int64(micros(t, c))
	for _, source := range []string{"one", "two"} {
		if _, _, err := b.Alive(t.Context(), source, protocol.Alive{Epoch: "e", Lease: 1000, Map: source}); err != nil {
			t.Fatal(err)
		}
	}
	after := int64(micros(t, c))
	for _, source := range []string{"one", "two"} {
		a := alive(t, c, "", source)
		if a.Time < before || a.Time > after || a.Epoch != "e" || a.Lease != 1000 || a.Map != source {
			t.Errorf("%s: %+v, wanted a time from %d to %d", source, a, before, after)
		}
	}
	fields := c.HKeys(t.Context(), "unstale:alive").Val()
	slices.Sort(fields)
	if !slices.Equal(fields, []string{"later", "one", "two"}) {
		t.Errorf("fields %q", fields)
	}
	if ttl := c.PTTL(t.Context(), "unstale:alive").Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("it stays for %v", ttl)
	}
}

// Workers of one source whose maps have different leases agree on the shortest one, until the
// workers with that lease have written nothing for 3 s.
func TestStatusAliveShortestLease(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k, c := open(t, keyspace.Options{Redis: at(server.URL())}), testenv.Client(t, server.URL())
	b := k.StatusHashes
	leaseAfter := func(mapVersion string, lease int64) int64 {
		if _, _, err := b.Alive(t.Context(), "one", protocol.Alive{Lease: lease, Map: mapVersion}); err != nil {
			t.Fatal(err)
		}
		a := alive(t, c, "", "one")
		if a.Map != mapVersion {
			t.Errorf("the map is %q, wanted %q", a.Map, mapVersion)
		}
		return a.Lease
	}
	if n := leaseAfter("long", 10_000); n != 10_000 {
		t.Errorf("alone: %d ms", n)
	}
	short := protocol.Alive{Time: int64(micros(t, c)), Lease: 5000, Map: "short"}
	if err := c.HSet(t.Context(), "unstale:alive", "one", short.String()).Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the short lease to end", func() bool {
		n := leaseAfter("long", 10_000)
		a := alive(t, c, "", "one")
		if (n == 5000) != (a.Time-short.Time < protocol.AliveLife) {
			t.Errorf("%d ms after %d us", n, a.Time-short.Time)
		}
		return n == 10_000
	})
	if n := leaseAfter("short", 5000); n != 5000 {
		t.Errorf("the short one: %d ms", n)
	}
}

// Each master of a Cluster has the field under a name in one of its slots, with the smallest number
// that leads there.
func TestStatusAliveInCluster(t *testing.T) {
	t.Parallel()
	c := testenv.OwnCluster(t, 3, false)
	b := open(t, keyspace.Options{Redis: at(c.URL())}).StatusHashes
	if _, _, err := b.Alive(t.Context(), "one", protocol.Alive{Map: "m"}); err != nil {
		t.Fatal(err)
	}
	for master, direct := range c.Direct {
		tag := ""
		for n := 0; tag == ""; n++ {
			slot := int(protocol.Slot(strconv.Itoa(n)))
			if slot >= c.First(master) && slot < c.First(master+1) {
				tag = strconv.Itoa(n)
			}
		}
		if a := alive(t, direct, tag, "one"); a.Map != "m" {
			t.Errorf("master %d: %+v", master, a)
		}
	}
}

func TestStatusHashes(t *testing.T) {
	t.Parallel()
	r := testenv.OwnRedis(t)
	b, c := open(t, keyspace.Options{Redis: at(r.URL())}).StatusHashes, testenv.Client(t, r.URL())
	for _, field := range []string{"a", "b", "c"} {
		if err := b.Post(t.Context(), keyspace.WorkersHash, field, "text of "+field); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.HSet(t.Context(), string(keyspace.WorkersHash), "nonsense", "x", "old", "1000000 text").Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Remove(t.Context(), keyspace.WorkersHash, "b"); err != nil {
		t.Fatal(err)
	}
	posted, err := b.Read(t.Context(), keyspace.WorkersHash)
	slices.SortFunc(posted, func(a, b keyspace.Posted) int { return strings.Compare(a.Field, b.Field) })
	if err != nil || len(posted) != 3 {
		t.Fatalf("%+v, %v", posted, err)
	}
	for i, want := range []string{"a", "c"} {
		if p := posted[i]; p.Field != want || p.Text != "text of "+want || p.Age < 0 || p.Age > time.Hour {
			t.Errorf("%+v", p)
		}
	}
	if p := posted[2]; p.Field != "old" || p.Text != "text" || p.Age < 24*time.Hour {
		t.Errorf("%+v", p)
	}
	if ttl := c.PTTL(t.Context(), string(keyspace.WorkersHash)).Val(); ttl <= 0 {
		t.Errorf("it stays for %v", ttl)
	}
}

// An account from before there were these hashes lacks rules, which the error names, and needs no others.
func TestStatusRules(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	rules := func(rules ...string) {
		t.Helper()
		args := []any{"acl", "setuser", "worker"}
		for _, r := range rules {
			args = append(args, r)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	rules("on", ">secret", "-@all", "+ping", "+get", "+set", "~unstale:beacon:*")
	b := open(t, keyspace.Options{Redis: at("redis://worker:secret@" + server.Addr())}).StatusHashes
	all := func() error {
		_, err := b.Read(t.Context(), keyspace.WorkersHash)
		_, _, alive := b.Alive(t.Context(), "one", protocol.Alive{})
		return errors.Join(err, alive, b.Post(t.Context(), keyspace.WorkersHash, "a", "x"),
			b.Remove(t.Context(), keyspace.SourcesHash, "a"))
	}
	var outage *keyspace.Outage
	if err := all(); !errors.As(err, &outage) || outage.State != keyspace.StateNoPerm || !strings.Contains(err.Error(), "+time") {
		t.Errorf("%v", err)
	}
	rules("+time", "+hset", "+hdel", "+hgetall", "+pexpire")
	if err := all(); err == nil || !strings.Contains(err.Error(), "~unstale:alive*") || !strings.Contains(err.Error(), "~unstale:workers") || !strings.Contains(err.Error(), "~unstale:sources") {
		t.Errorf("%v", err)
	}
	rules(strings.Fields(keyspace.StatusRules)...)
	if err := all(); err != nil {
		t.Error(err)
	}
}

// A Redis that holds the state of workers and nothing else is empty: nothing in it can be stale.
func TestStateOfWorkersIsNoData(t *testing.T) {
	t.Parallel()
	k, _, c := beaconed(t)
	b := k.StatusHashes
	_, _, err := b.Alive(t.Context(), "one", protocol.Alive{})
	if err := errors.Join(err, b.Post(t.Context(), keyspace.WorkersHash, "a", "x"), b.Post(t.Context(), keyspace.SourcesHash, "a", "x")); err != nil {
		t.Fatal(err)
	}
	if got, err := k.Beacons.Survived(t.Context(), []string{"LOST"}); err != nil || got["LOST"] != keyspace.Everything {
		t.Errorf("%v, %v", got, err)
	}
	if err := c.Set(t.Context(), "shop:1", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := k.Beacons.Survived(t.Context(), []string{"LOST"}); err != nil || got["LOST"] != 0 {
		t.Errorf("with a key: %v, %v", got, err)
	}
}
