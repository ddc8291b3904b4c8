package keyspace_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

func addMembers(t testing.TB, c redis.UniversalClient, set string, members ...string) {
	t.Helper()
	for len(members) > 0 {
		n := min(len(members), 5000)
		args := make([]any, n)
		for i, m := range members[:n] {
			args[i] = m
		}
		if err := c.SAdd(t.Context(), set, args...).Err(); err != nil {
			t.Fatal(err)
		}
		members = members[n:]
	}
}

// A taker takes one set apart, and returns how many members it found.
type taker func(ctx context.Context, k *keyspace.Keyspace, set string, id uint64, gone func(members []string) error) (int64, error)

// withTakers runs a test with all takers in parallel.
func withTakers(t *testing.T, test func(t *testing.T, take taker)) {
	t.Parallel()
	for name, take := range takers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, take)
		})
	}
}

// takers are both ways to take a set apart: alone, and among others that are not there.
func takers(t *testing.T) map[string]taker {
	alone := func(ctx context.Context, k *keyspace.Keyspace, set string, id uint64, gone func(members []string) error) (int64, error) {
		taken, err := k.Sets.TakeSet(ctx, set, id, gone)
		return taken.Members, err
	}
	among := func(ctx context.Context, k *keyspace.Keyspace, set string, id uint64, gone func(members []string) error) (int64, error) {
		taken, err := k.Sets.TakeSets(ctx, []keyspace.SetRequest{{Set: "none:a", ID: id}, {Set: set, ID: id}, {Set: "none:b", ID: id}}, gone)
		if err != nil {
			return 0, err
		}
		for _, i := range []int{0, 2} {
			if s := taken.Sets[i]; s != (keyspace.SetResult{}) {
				t.Errorf("a set that is not there: %+v", s)
			}
		}
		s := taken.Sets[1]
		if s.Large {
			n, err := alone(ctx, k, set, id, gone)
			return s.Members + n, err
		}
		return s.Members, s.Err
	}
	return map[string]taker{"alone": alone, "among others": among}
}

// Every member goes with its lease, then the set; sets are read in pages.
func TestTakeSet(t *testing.T) { withTakers(t, testTakeSet) }

func testTakeSet(t *testing.T, take taker) {
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL())})
	c := k.Nodes.Client()
	for id, set := range []string{"tag:shoes", "tag:{7}:x", "tag:}odd{", "{}", "tag:{", "tag:\n*"} {
		sizes := []int{0, 1, 5, 900}
		if id == 0 {
			sizes = append(sizes, 20_000)
		}
		for _, n := range sizes {
			members := names(n, "zahraah:prod:product:%d")
			fill(t, c, members...)
			fill(t, c, leases(members...)...)
			fill(t, c, "bystander")
			addMembers(t, c, set, members...)

			heard := 0
			got, err := take(t.Context(), k, set, uint64(id), func(members []string) error { heard += len(members); return nil })
			if err != nil || got < int64(n) || int64(heard) != got {
				t.Fatalf("%q: %d members, %d heard of, %v, want %d", set, got, heard, err, n)
			}
			if n := c.DBSize(t.Context()).Val(); n != 1 {
				t.Fatalf("%q: %d keys left, want the bystander alone", set, n)
			}
		}
	}
	stats := c.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
	if _, ok := stats["cmdstat_smembers"]; ok {
		t.Error("a set was read in one piece")
	}
}

// After a crash at any point, the next call with the same ID finishes.
func TestTakeSetResumes(t *testing.T) { withTakers(t, testTakeSetResumes) }

func testTakeSetResumes(t *testing.T, take taker) {
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	setUser(t, admin, "worker", "on", ">secret", "~*", "+@all", "-unlink")
	k := open(t, keyspace.Options{Redis: at("redis://worker:secret@" + server.Addr())})
	first, second := names(3000, "first:%d"), names(10, "second:%d")
	fill(t, admin, first...)
	fill(t, admin, second...)
	addMembers(t, admin, "tag", first...)

	// It stops right after the rename.
	_, err := take(t.Context(), k, "tag", 42, unheard)
	wantOutage(t, err, keyspace.StateNoPerm)
	private := keyspace.PrivateName("tag", 42)
	wantLeft(t, admin, []string{"tag", private}, private)
	// Meanwhile the application begins a new set.
	addMembers(t, admin, "tag", second...)
	setUser(t, admin, "worker", "+unlink")
	// The next one stops in the middle of the members.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for admin.Exists(ctx, first...).Val() == int64(len(first)) && ctx.Err() == nil {
		}
		cancel()
	}()
	for err = nil; err == nil && ctx.Err() == nil; {
		_, err = take(ctx, k, "tag", 42, unheard)
	}
	if err != nil {
		wantOutage(t, err, keyspace.StateCanceled)
	}
	if _, err := take(t.Context(), k, "tag", 42, unheard); err != nil {
		t.Fatal(err)
	}
	if n := admin.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

// Members that are added all the time do not keep the call from ending: what is added after the
// rename is another set.
func TestTakeSetLeavesTheNextSet(t *testing.T) { withTakers(t, testTakeSetLeavesTheNextSet) }

func testTakeSetLeavesTheNextSet(t *testing.T, take taker) {
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	addMembers(t, r.Client, "tag", "a")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			r.Client.SAdd(ctx, "tag", "b")
		}
	}()
	_, err := take(t.Context(), k, "tag", 1, unheard)
	cancel()
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
}

// A name that is not a set is its row's fault, and stays as it is.
func TestTakeSetOfSomethingElse(t *testing.T) { withTakers(t, testTakeSetOfSomethingElse) }

func testTakeSetOfSomethingElse(t *testing.T, take taker) {
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	fill(t, r.Client, "text", keyspace.PrivateName("tag", 2))
	_, err := take(t.Context(), k, "text", 1, unheard)
	wantRefusal(t, err, "text")
	wantLeft(t, r.Client, []string{"text"}, "text")
	// Another client stored a value under the private name.
	_, err = take(t.Context(), k, "tag", 2, unheard)
	wantRefusal(t, err, keyspace.PrivateName("tag", 2))
	if n, err := take(t.Context(), k, "absent", 3, unheard); n != 0 || err != nil {
		t.Errorf("absent: %d, %v", n, err)
	}
}

// A member that Redis refuses keeps the private set for another attempt. It keeps its time to live,
// so it cannot stay forever.
func TestTakeSetRefusedMember(t *testing.T) { withTakers(t, testTakeSetRefusedMember) }

func testTakeSetRefusedMember(t *testing.T, take taker) {
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	setUser(t, admin, "worker", "on", ">secret", "+@all", "~a:*", "~tag", "~none:*", "~unstale:set:*", "~lock:fill:*")
	k := open(t, keyspace.Options{Redis: at("redis://worker:secret@" + server.Addr())})
	fill(t, admin, "a:1", "b:1", "a:2")
	addMembers(t, admin, "tag", "a:1", "b:1", "a:2")
	admin.Expire(t.Context(), "tag", time.Hour)

	var heard []string
	_, err := take(t.Context(), k, "tag", 1, func(members []string) error { heard = append(heard, members...); return nil })
	wantRefusal(t, err, "b:1")
	if slices.Sort(heard); !slices.Equal(heard, []string{"a:1", "a:2"}) {
		t.Errorf("heard of %q, want those that are gone", heard)
	}
	private := keyspace.PrivateName("tag", 1)
	wantLeft(t, admin, []string{"a:1", "b:1", "a:2", "tag", private}, "b:1", private)
	if ttl := admin.TTL(t.Context(), private).Val(); ttl <= 0 {
		t.Errorf("private set lives for %v", ttl)
	}
	setUser(t, admin, "worker", "~b:*")
	if _, err := take(t.Context(), k, "tag", 1, unheard); err != nil {
		t.Fatal(err)
	}
	if n := admin.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

// Two takers of one set, for example after a sweep lock was lost undetected: the first one must not
// remove members that the second one has just renamed to the private name.
func TestTakeSetTwice(t *testing.T) { withTakers(t, testTakeSetTwice) }

func testTakeSetTwice(t *testing.T, take taker) {
	server := testenv.OwnRedis(t)
	admin := testenv.Client(t, server.URL())
	setUser(t, admin, "second", "on", ">secret", "~*", "+@all")
	first := open(t, keyspace.Options{Redis: at(server.URL())})
	second := open(t, keyspace.Options{Redis: at("redis://second:secret@" + server.Addr())})
	fill(t, admin, "a", "b")
	addMembers(t, admin, "tag", "a")

	private := keyspace.PrivateName("tag", 1)
	// it has unlinked a, and no more
	_, err := take(t.Context(), first, "tag", 1, func([]string) error {
		addMembers(t, admin, "tag", "b")
		_, err := take(t.Context(), second, "tag", 1, func([]string) error {
			setUser(t, admin, "second", "-sscan")
			return nil
		})
		wantOutage(t, err, keyspace.StateNoPerm) // right after its rename
		wantLeft(t, admin, []string{"a", "tag", private}, private)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	setUser(t, admin, "second", "+sscan")
	if _, err := take(t.Context(), second, "tag", 1, unheard); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, admin, []string{"a", "b", "tag", private})
}

// Members that could not be announced are announced by the next call.
func TestTakeSetUnannounced(t *testing.T) { withTakers(t, testTakeSetUnannounced) }

func testTakeSetUnannounced(t *testing.T, take taker) {
	r := testenv.Redis(t)
	k := open(t, keyspace.Options{Redis: at(r.URL)})
	addMembers(t, r.Client, "tag", "a", "b")
	deaf := errors.New("nobody listens")
	if _, err := take(t.Context(), k, "tag", 1, func([]string) error { return deaf }); !errors.Is(err, deaf) {
		t.Fatalf("got error %v", err)
	}
	var heard []string
	_, err := take(t.Context(), k, "tag", 1, func(members []string) error { heard = append(heard, members...); return nil })
	if err != nil || len(heard) != 2 {
		t.Errorf("heard of %q, %v", heard, err)
	}
}

// Many sets cost hardly more round trips than one, and what is wrong with one of them concerns no
// other.
func TestTakeSets(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL()), BeaconTTL: time.Hour, SweepShare: 1})
	c := testenv.Client(t, server.URL())
	large := names(3000, "large:%d")
	fill(t, c, append(large, "tag:text")...)
	addMembers(t, c, "tag:large", large...)
	requests := []keyspace.SetRequest{{Set: "tag:text", ID: 1}, {Set: "tag:large", ID: 2}}
	for i, set := range names(500, "tag:%d") {
		members := append(names(i%7, set+":%d"), "shared")
		fill(t, c, members...)
		fill(t, c, leases(members...)...)
		addMembers(t, c, set, members...)
		requests = append(requests, keyspace.SetRequest{Set: set, ID: uint64(3 + 2*i)}, keyspace.SetRequest{Set: set, ID: uint64(4 + 2*i)})
	}
	roundTrips := &roundTrips{}
	k.Nodes.Client().AddHook(roundTrips)
	heard := map[string]bool{}
	taken, err := k.Sets.TakeSets(t.Context(), requests, func(members []string) error {
		for _, m := range members {
			heard[m] = true
		}
		return nil
	})
	if err != nil || taken.Position.Epoch == "" {
		t.Fatalf("%+v, %v", taken.Position, err)
	}
	wantRefusal(t, taken.Sets[0].Err, "tag:text")
	if s := taken.Sets[1]; s != (keyspace.SetResult{Large: true}) {
		t.Errorf("the large set: %+v", s)
	}
	for i, s := range taken.Sets[2:] {
		if want := int64((i/2%7 + 1) * (1 - i%2)); s != (keyspace.SetResult{Members: want}) {
			t.Errorf("request %d: %+v, want %d members", i, s, want)
		}
	}
	if want := c.SCard(t.Context(), "tag:large").Val(); want != 3000 {
		t.Errorf("the large set has %d members left", want)
	}
	if n := c.DBSize(t.Context()).Val(); n != 3000+2+6 { // the beacon has six keys
		t.Errorf("%d keys left", n)
	}
	if len(heard) != 1+500/7*21+0+1+2 { // 500 is 71 times 7, and 3
		t.Errorf("heard of %d members", len(heard))
	}
	if n := roundTrips.n.Load(); n > 8 {
		t.Errorf("%d round trips", n)
	}
}

// Trips counts pipelines.
type roundTrips struct{ n atomic.Int64 }

func (c *roundTrips) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, commands)
	}
}

// unheard is for callers that publish nothing.
func unheard([]string) error { return nil }
