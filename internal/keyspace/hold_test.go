package keyspace_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
)

func TestHolds(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	testHolds(t, r.Client, open(t, keyspace.Options{Redis: at(r.URL), BeaconTTL: time.Hour}))
}

// testHolds sets tombstones on keys, tag versions among them, and then tries everything that could
// end or shorten them.
func testHolds(t *testing.T, c redis.UniversalClient, k *keyspace.Keyspace) {
	t.Helper()
	keys := []string{"held", "held:long", "user:{7}:held", "stamp:held", "free", "no}lease", "twice"}
	fill(t, c, keys...)
	fill(t, c, leases(keys...)...)
	mustUnlink(t, k, []keyspace.Target{
		{Key: "held", Hold: time.Minute},
		{Key: "held:long", Hold: time.Hour},
		{Key: "user:{7}:held", Hold: time.Minute},
		{Key: "stamp:held", Hold: time.Minute},
		{Key: "free"},
		{Key: "no}lease", Hold: time.Minute},
		// The longest Hold of a key counts, at any place in the call.
		{Key: "twice"}, {Key: "twice", Hold: time.Hour}, {Key: "twice", Hold: time.Minute},
	})
	holds := map[string]time.Duration{
		"held": time.Minute, "held:long": time.Hour, "user:{7}:held": time.Minute, "stamp:held": time.Minute, "twice": time.Hour,
	}
	check := func(after string) {
		t.Helper()
		wantLeft(t, c, keys)
		wantLeft(t, c, leases(keys...))
		wantLeft(t, c, tombstones("free"))
		for key, hold := range holds {
			if ttl := c.PTTL(t.Context(), tombstones(key)[0]).Val(); ttl > hold || ttl < hold/2 {
				t.Errorf("%s the tombstone of %s lives for %v, want %v", after, key, ttl, hold)
			}
		}
	}
	check("at first")

	fill(t, c, keys...)
	fill(t, c, leases(keys...)...)
	mustUnlink(t, k, append(targets(keys...), targets(tombstones(keys...)...)...))
	check("after an UNLINK without a hold, and one of the tombstones' own names")

	var shorter []keyspace.Target
	for key := range holds {
		shorter = append(shorter, keyspace.Target{Key: key, Hold: time.Second})
	}
	mustUnlink(t, k, shorter)
	check("after a shorter hold")

	sweepAll(t, k)
	fill(t, c, leases(keys...)...)
	sweepAll(t, k)
	check("after a sweep of everything")

	for key := range holds {
		if err := c.SAdd(t.Context(), "tag:all", key, tombstones(key)[0]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.Sets.TakeSet(t.Context(), "tag:all", 1, unheard); err != nil {
		t.Fatal(err)
	}
	for key := range holds {
		if err := c.SAdd(t.Context(), "tag:again", key, tombstones(key)[0]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	taken, err := k.Sets.TakeSets(t.Context(), []keyspace.SetRequest{{Set: "tag:again", ID: 2}}, unheard)
	if err != nil || taken.Sets[0].Err != nil {
		t.Fatal(taken, err)
	}
	wantLeft(t, c, []string{"tag:all", "tag:again"})
	check("after index sets that list them")

	holds["held"] = time.Hour
	mustUnlink(t, k, []keyspace.Target{{Key: "held", Hold: time.Hour}})
	check("after a longer hold")
}

// sweepAll sweeps patterns that match tombstones, in all ways. The matches are the keys and leases
// alone.
func sweepAll(t *testing.T, k *keyspace.Keyspace) {
	t.Helper()
	swept, err := k.Sweeper.Sweep(t.Context(), []string{"lock:hold:*", "lock:*", "*held*", "twice*", "free*", "no*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range swept.Patterns {
		if p.Err != nil || p.Pattern == "lock:hold:*" && p.Matched != 0 {
			t.Errorf("%+v", p)
		}
	}
}

// A tombstone is set before the first key is unlinked, and no UNLINK names it. A call without hold
// time sends no command about tombstones.
func TestTombstonesComeFirst(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL())})
	commands := monitor(t, server.Addr())
	mustUnlink(t, k, []keyspace.Target{{Key: "free"}, {Key: "held", Hold: time.Minute}, {Key: "no}lease", Hold: time.Minute}})
	seen := commands()
	first := func(text string) int {
		return slices.IndexFunc(seen, func(line string) bool { return strings.Contains(strings.ToLower(line), text) })
	}
	set, unlink := first(`"set" "lock:hold:{held}"`), first(`"unlink"`)
	if set < 0 || unlink < set {
		t.Errorf("server saw\n%s", strings.Join(seen, "\n"))
	}
	if n := strings.Count(strings.Join(seen, "\n"), "lock:hold:"); n != 3 {
		t.Errorf("%d commands name a tombstone:\n%s", n, strings.Join(seen, "\n"))
	}

	commands = monitor(t, server.Addr())
	mustUnlink(t, k, targets("free", "held"))
	if all := strings.Join(commands(), "\n"); strings.Contains(all, "lock:hold:") {
		t.Errorf("server saw\n%s", all)
	}
}

// A requested hold stays, even if others use the same tombstones meanwhile.
func TestHoldsBesideOthers(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	long, short := open(t, keyspace.Options{Redis: at(r.URL)}), open(t, keyspace.Options{Redis: at(r.URL)})
	keys := names(200, "held:%d")
	held := func(hold time.Duration) []keyspace.Target {
		all := targets(keys...)
		for i := range all {
			all[i].Hold = hold
		}
		return all
	}
	for range 20 {
		if err := r.Client.Unlink(t.Context(), tombstones(keys...)...).Err(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		for range 3 {
			go func() {
				_, err := short.Unlinker.Unlink(t.Context(), held(time.Millisecond))
				done <- err
			}()
		}
		mustUnlink(t, long, held(time.Hour))
		for range 3 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range tombstones(keys...) {
			if ttl := r.Client.PTTL(t.Context(), name).Val(); ttl < time.Hour/2 {
				t.Fatalf("%s lives for %v", name, ttl)
			}
		}
	}
}
