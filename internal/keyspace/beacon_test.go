package keyspace_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

// beaconed returns a Keyspace with beacons on a new server.
func beaconed(t *testing.T) (*keyspace.Keyspace, *servers.Redis, *redis.Client) {
	t.Helper()
	server := testenv.OwnRedis(t)
	k := open(t, keyspace.Options{Redis: at(server.URL()), BeaconTTL: time.Hour, Timeout: time.Second})
	return k, server, testenv.Client(t, server.URL())
}

// done unlinks keys and returns the position.
func done(t *testing.T, k *keyspace.Keyspace, keys ...string) keyspace.Position {
	t.Helper()
	u, err := k.Unlinker.Unlink(t.Context(), targets(keys...))
	if err != nil {
		t.Fatal(err)
	}
	return u.Position
}

// wantLoss calls ask until the server answers, and checks that it reports a loss of everything
// after the position.
func wantLoss(t *testing.T, last keyspace.Position, ask func() error) {
	t.Helper()
	testenv.Eventually(t, "a loss", func() bool {
		err := ask()
		var outage *keyspace.Outage
		if errors.As(err, &outage) {
			return false // the connection to the old process
		}
		var loss *keyspace.Loss
		if !errors.As(err, &loss) || loss.Position.Epoch != last.Epoch || loss.Position.N < last.N {
			t.Fatalf("got error %v, want a loss of what came after position %v", err, last)
		}
		return true
	})
}

func wantSurvived(t *testing.T, k *keyspace.Keyspace, epoch string, want uint64) {
	t.Helper()
	wantSurvivedSince(t, k, epoch, want, want)
}

// wantSurvivedSince checks that the position is from least to most.
func wantSurvivedSince(t *testing.T, k *keyspace.Keyspace, epoch string, least, most uint64) {
	t.Helper()
	got, err := k.Beacons.Survived(t.Context(), []string{epoch})
	if err != nil || got[epoch] < least || got[epoch] > most {
		t.Errorf("position %d of the epoch survived, %v; want %d to %d", got[epoch], err, least, most)
	}
}

func restart(t *testing.T, server *servers.Redis) {
	t.Helper()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A server that comes back with an old snapshot: the first call reports it, and the position is
// known, also to later calls and to another process.
func TestOldSnapshotIsNoticed(t *testing.T) {
	t.Parallel()
	k, server, c := beaconed(t)
	fill(t, c, "a", "b", "c")
	first := done(t, k, "a")
	kept := done(t, k, "b")
	if kept.Epoch != first.Epoch || kept.N <= first.N {
		t.Errorf("position %v came after %v", kept, first)
	}
	if err := c.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	lost := done(t, k, "c")
	wantSurvived(t, k, lost.Epoch, lost.N)
	restart(t, server)
	wantLeft(t, c, []string{"a", "b", "c"}, "c")

	wantLoss(t, lost, func() error { _, err := k.Unlinker.Unlink(t.Context(), targets("d")); return err })
	wantSurvivedSince(t, k, lost.Epoch, first.N, kept.N)
	later := done(t, k, "e")
	if later.Epoch == lost.Epoch {
		t.Error("the epoch goes on after a loss")
	}
	other := open(t, keyspace.Options{Redis: at(server.URL()), BeaconTTL: time.Hour})
	wantSurvivedSince(t, other, lost.Epoch, first.N, kept.N)
	wantSurvived(t, other, later.Epoch, later.N)
}

// A snapshot from between the two keys of the beacon, in both orders.
func TestSnapshotAtEveryPosition(t *testing.T) {
	t.Parallel()
	k, server, c := beaconed(t)
	for range 4 {
		var kept, before keyspace.Position
		for i := range 3 {
			before, kept = kept, done(t, k, fmt.Sprint("kept", i))
		}
		if err := c.Save(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		var lost keyspace.Position
		for i := range 1 + rand.IntN(3) {
			lost = done(t, k, fmt.Sprint("lost", i))
		}
		restart(t, server)
		wantSurvived(t, open(t, keyspace.Options{Redis: at(server.URL())}), lost.Epoch, kept.N)
		wantLoss(t, lost, func() error { _, err := k.Beacons.CheckBeacon(t.Context()); return err })
		wantSurvivedSince(t, k, lost.Epoch, before.N, kept.N)
	}
}

// A server that comes back empty has lost the beacon and everything stale; one that holds something
// has lost its memory.
func TestEmptyServerIsNoticed(t *testing.T) {
	t.Parallel()
	k, server, c := beaconed(t)
	lost := done(t, k, "a")
	restart(t, server)
	wantLoss(t, lost, func() error { _, err := k.Beacons.CheckBeacon(t.Context()); return err })
	wantSurvived(t, k, lost.Epoch, keyspace.Everything)
	fill(t, c, "b")
	wantSurvived(t, k, lost.Epoch, 0)
}

// GET and SET are all that beacons need. Who may not SCAN takes an empty server for one that has
// lost its memory.
func TestBeaconWithGetAndSetAlone(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	setUser(t, testenv.Client(t, server.URL()), "worker", "on", ">secret", "-@all", "+get", "+set", "+unlink", "~*")
	k := open(t, keyspace.Options{Redis: at("redis://worker:secret@" + server.Addr()), BeaconTTL: time.Hour})
	b := done(t, k, "a")
	if _, err := k.Beacons.CheckBeacon(t.Context()); err != nil {
		t.Error(err)
	}
	got, err := k.Beacons.Survived(t.Context(), []string{b.Epoch, "never heard of"})
	if err != nil || got[b.Epoch] <= b.N || got["never heard of"] != 0 {
		t.Errorf("survived: %v, %v", got, err)
	}
}

// A sweep and an index set are protected like single keys.
func TestLostSweepIsNoticed(t *testing.T) {
	t.Parallel()
	k, server, c := beaconed(t)
	fill(t, c, "list:1", "list:2", "member")
	addMembers(t, c, "tag", "member")
	if err := c.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	swept, err := k.Sweeper.Sweep(t.Context(), []string{"list:*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := k.Sets.TakeSet(t.Context(), "tag", 1, unheard)
	if err != nil || taken.Position.Epoch != swept.Position.Epoch || taken.Position.N <= swept.Position.N {
		t.Fatalf("the set ends at position %v, %v, the sweep at %v", taken.Position, err, swept.Position)
	}
	if unlinked := done(t, k, "x"); unlinked.Epoch == swept.Position.Epoch {
		t.Error("sweeps and keys share an epoch")
	}
	restart(t, server)
	wantSurvived(t, k, swept.Position.Epoch, 0)
	wantLoss(t, taken.Position, func() error { _, err := k.Sweeper.Sweep(t.Context(), []string{"list:*"}, nil); return err })
}

// Without beacons nothing is written and nothing is noticed.
func TestNoBeacons(t *testing.T) {
	t.Parallel()
	k := open(t, keyspace.Options{Redis: at(testenv.Redis(t).URL)})
	if b := done(t, k, "a"); b != (keyspace.Position{}) {
		t.Errorf("position %v", b)
	}
	if _, err := k.Beacons.CheckBeacon(t.Context()); err != nil {
		t.Error(err)
	}
	if n := k.Nodes.Client().DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}

// The result for a beacon is right for every history: a model of a server that returns to older
// states at random. It may assume more losses than there are, and never fewer.
func TestVerdictOnEveryHistory(t *testing.T) {
	t.Parallel()
	type state struct {
		keys [2]string
		kept uint64 // nothing is missing up to this position
	}
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		history := []state{{}}
		var acked, tried uint64
		slot, losses := 0, 0 // slot holds acked
		for range 40 {
			now := history[len(history)-1]
			if rnd.IntN(6) == 0 { // back to an older state
				now = history[rnd.IntN(len(history))]
				history = append(history, now)
				if now.kept < acked {
					losses++
				}
			}
			tried++
			next := state{keys: now.keys, kept: now.kept}
			next.keys[1-slot] = fmt.Sprint(tried, " ", acked)
			if now.kept >= acked { // nothing acknowledged was missing when this one was written
				next.kept = tried
			}
			history = append(history, next)
			got := keyspace.JudgeBeacon(next.keys[0], next.keys[1])
			if got > next.kept {
				t.Fatalf("seed %d: %q is taken for position %d, but only %d is safe", seed, next.keys, got, next.kept)
			}
			if losses == 0 && got != tried {
				t.Fatalf("seed %d: %q is taken for position %d of %d without a loss", seed, next.keys, got, tried)
			}
			if next.kept < acked {
				break // the writer sees it in the answers and begins a new epoch
			}
			if rnd.IntN(4) > 0 { // otherwise the answer got lost
				acked, slot = tried, 1-slot
			}
		}
	}
}

// For any content of the keys of a beacon, the result is a number that was in it, or none.
func FuzzBeacon(f *testing.F) {
	for _, seed := range [][2]string{{"7 6", "6 5"}, {"7 6", "4 3"}, {"", "1 0"}, {"18446744073709551615 1", "x"}, {"5 5", "-1 0"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		n := keyspace.JudgeBeacon(a, b)
		if n != keyspace.JudgeBeacon(b, a) {
			t.Errorf("%q and %q: the order counts", a, b)
		}
		digits := fmt.Sprint(n)
		if n != 0 && !strings.Contains(a, digits) && !strings.Contains(b, digits) {
			t.Errorf("%q and %q: %d stands nowhere", a, b, n)
		}
	})
}

// allkeys-random evicts copies of the beacon. While one is left that has the last position, nothing
// is lost, for this process and for others; without any, everything may be.
func TestEvictedBeacon(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, "--maxmemory", "5mb", "--maxmemory-policy", "allkeys-random", "--maxmemory-samples", "1")
	client := testenv.Client(t, server.URL())
	k := open(t, keyspace.Options{Redis: at(server.URL()), BeaconTTL: time.Hour, Timeout: time.Second})
	position := done(t, k, "a")
	newest := func() (names []string) {
		t.Helper()
		for n := range 7 {
			name := fmt.Sprintf("unstale:beacon:%s:%d", position.Epoch, n)
			if text, err := client.Get(t.Context(), name).Result(); err == nil && strings.HasPrefix(text, fmt.Sprint(position.N, " ")) {
				names = append(names, name)
			} else if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
		}
		return names
	}
	all := len(newest())
	for evicted, filled := 0, 0; evicted < 3; filled += 50 {
		fill(t, client, names(50, fmt.Sprint("shop:", filled, ":%d"))...)
		left := len(newest())
		if left < all {
			evicted++
			wantSurvived(t, k, position.Epoch, position.N)
		}
		var err error
		if position, err = k.Beacons.CheckBeacon(t.Context()); err != nil {
			t.Fatalf("%d of %d copies were left: %v", left, all, err)
		}
	}
	if err := client.Del(t.Context(), newest()...).Err(); err != nil {
		t.Fatal(err)
	}
	wantLoss(t, position, func() error {
		_, err := k.Beacons.CheckBeacon(t.Context())
		if err == nil || !strings.Contains(err.Error(), "maxmemory-policy is allkeys-random") {
			t.Errorf("%v does not name the policy", err)
		}
		return err
	})
}
