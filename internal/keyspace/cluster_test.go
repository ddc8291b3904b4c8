package keyspace_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A testCluster is three masters, each with a third of the slots.
type testCluster struct{ *testenv.Cluster }

// owner returns the node that a key belongs to while no slot has moved.
func (c *testCluster) owner(key string) int { return int(protocol.Slot(key)) * 3 / 16384 }

func startCluster(t *testing.T, replicas bool) *testCluster {
	t.Helper()
	return &testCluster{testenv.OwnCluster(t, 3, replicas)}
}

// errorsSeen counts the error replies of a kind that all nodes have given.
func (c *testCluster) errorsSeen(t *testing.T, kind string) (n int) {
	t.Helper()
	for _, d := range c.Direct {
		stat := d.InfoMap(t.Context(), "errorstats").Val()["Errorstats"]["errorstat_"+kind]
		if count, ok := strings.CutPrefix(stat, "count="); ok {
			i, err := strconv.Atoi(count)
			if err != nil {
				t.Fatal(err)
			}
			n += i
		}
	}
	return n
}

// oddKeys are names that slots and hash tags make trouble for.
var oddKeys = []string{"{}", "a}b", "}{", "{a", "a{}b", "a{{b}}c", "user:{1000}:cart", "{whole}", "\n{\xff}*", "سلة:{٧}"}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, false)
	k := open(t, keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour})
	t.Run("Slot", func(t *testing.T) {
		for _, key := range append(names(200, "key:%d"), oddKeys...) {
			if want := c.Direct[0].ClusterKeySlot(t.Context(), key).Val(); int64(protocol.Slot(key)) != want {
				t.Errorf("%q is in slot %d, want %d", key, protocol.Slot(key), want)
			}
		}
	})
	t.Run("Unlink", func(t *testing.T) { testClusterUnlink(t, c, k) })
	t.Run("Time", func(t *testing.T) {
		for _, key := range append(names(20, "key:%d"), oddKeys...) {
			if at, err := k.Contents.Time(t.Context(), key); err != nil || time.Since(at).Abs() > time.Minute {
				t.Errorf("%q: %s, %v", key, at, err)
			}
		}
	})
	t.Run("Publish", func(t *testing.T) { testClusterPublish(t, c, k) })
	t.Run("PublishSharded", func(t *testing.T) { testClusterPublishSharded(t, c) })
	t.Run("Sweep", func(t *testing.T) { testClusterSweep(t, c, k) })
	for name, take := range takers(t) {
		t.Run("TakeSet "+name, func(t *testing.T) { testClusterTakeSet(t, c, k, take) })
	}
	t.Run("TakeSets in a moving slot", func(t *testing.T) { testClusterTakeSetsMoving(t, c, k) })
	t.Run("MovingSlot", func(t *testing.T) { testClusterMovingSlot(t, c, k) })
	t.Run("WrongMode", func(t *testing.T) {
		one := open(t, keyspace.Options{Redis: at(c.Nodes[0].URL())})
		_, err := one.Unlinker.Unlink(t.Context(), targets(names(10, "key:%d")...))
		wantOutage(t, err, keyspace.StateWrongMode)
		_, err = one.Contents.Estimate(t.Context(), []string{"a*"}, 10)
		wantOutage(t, err, keyspace.StateWrongMode)
	})
	t.Run("Wait", func(t *testing.T) { testClusterWait(t, c) })
	t.Run("MasterLost", func(t *testing.T) { testClusterMasterLost(t, c) })
}

// No command crosses slots or goes to the wrong node (guarantee 6).
func testClusterUnlink(t *testing.T, c *testCluster, k *keyspace.Keyspace) {
	if err := k.Nodes.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys := append(names(5000, "zahraah:prod:product:%d"), names(1200, "user:{7}:%d")...)
	keys = append(keys, oddKeys...)
	fill(t, c.Client, keys...)
	fill(t, c.Client, leases(keys...)...)
	fill(t, c.Client, "bystander")
	crossed, moved := c.errorsSeen(t, "CROSSSLOT"), c.errorsSeen(t, "MOVED")

	all := targets(keys...)
	all[0].Hold, all[1].Hold, all[6000].Hold = time.Minute, time.Minute, time.Minute
	mustUnlink(t, k, all)
	wantLeft(t, c.Client, keys)
	wantLeft(t, c.Client, leases(keys...))
	wantLeft(t, c.Client, tombstones(keys...), tombstones(keys[0], keys[1], keys[6000])...)
	wantLeft(t, c.Client, []string{"bystander"}, "bystander")
	if c.errorsSeen(t, "CROSSSLOT") != crossed || c.errorsSeen(t, "MOVED") != moved {
		t.Error("a command crossed slots or went to the wrong node")
	}
	testHolds(t, c.Client, k)
}

// Subscribers on every node receive one epoch in the order of its numbers.
func testClusterPublish(t *testing.T, c *testCluster, k *keyspace.Keyspace) {
	var hears []func() string
	for _, d := range c.Direct {
		hears = append(hears, subscribe(t, d, "cache:invalidate"))
	}
	keys := names(5000, "key:%d")
	for range 2 {
		if n, err := k.Publisher.Publish(t.Context(), "cache:invalidate", protocol.FormatEvent, keyspace.News{Keys: keys, Patterns: []string{"p:*"}}); n.Messages != 6 || n.Receivers != -1 || err != nil {
			t.Fatalf("%d messages, %v, want 6", n.Messages, err)
		}
	}
	epochs := map[string]bool{}
	for i, hear := range hears {
		for seq := uint64(1); seq <= 12; seq++ {
			m := decode(t, hear())
			epochs[m.Epoch] = true
			if m.Seq != seq {
				t.Errorf("node %d: heard %d, want %d", i, m.Seq, seq)
			}
		}
	}
	if len(epochs) != 1 {
		t.Errorf("%d epochs", len(epochs))
	}
}

// With sharded Pub/Sub a message stays in the shard of the channel's slot, and finds its way when
// the slot has moved.
func testClusterPublishSharded(t *testing.T, c *testCluster) {
	k := open(t, keyspace.Options{Redis: at(c.URL()), ShardedPubSub: true})
	sub := c.Client.SSubscribe(t.Context(), "cache:{sharded}")
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	plain := subscribe(t, c.Direct[0], "cache:{sharded}")
	for _, keys := range [][]string{{"a"}, {"b", "c"}} {
		if n, err := k.Publisher.Publish(t.Context(), "cache:{sharded}", protocol.FormatEvent, keyspace.News{Keys: keys}); n.Messages != 1 || err != nil {
			t.Fatalf("%d messages, %v", n.Messages, err)
		}
		text, err := sub.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m := decode(t, text.Payload); !slices.Equal(m.Keys, keys) {
			t.Errorf("heard %q", m.Keys)
		}
	}
	// A plain subscriber has received nothing: this is its first message.
	if err := c.Direct[0].Publish(t.Context(), "cache:{sharded}", `["first"]`).Err(); err != nil {
		t.Fatal(err)
	}
	if m := decode(t, plain()); !slices.Equal(m.Keys, []string{"first"}) {
		t.Errorf("a plain subscriber heard %q", m.Keys)
	}
}

func testClusterSweep(t *testing.T, c *testCluster, k *keyspace.Keyspace) {
	keys := append(names(6000, "sweep:a:%d"), "sweep:a:{7}", "sweep:a:}x")
	staying := names(3000, "sweep:b:%d")
	for _, list := range [][]string{keys, leases(keys...), leases("sweep:a:absent"), staying, leases(staying...)} {
		fill(t, c.Client, list...)
	}
	got, err := k.Sweeper.Sweep(t.Context(), []string{"sweep:a:*", "nothing:*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantLeft(t, c.Client, slices.Concat(keys, leases(keys...), leases("sweep:a:absent")))
	wantLeft(t, c.Client, append(staying, leases(staying...)...), append(staying, leases(staying...)...)...)
	if want := int64(len(keys) + len(leases(keys...)) + 1); got.Unlinked != want {
		t.Errorf("%+v, want %d unlinked", got, want)
	}
}

func testClusterTakeSet(t *testing.T, c *testCluster, k *keyspace.Keyspace, take taker) {
	for id, set := range append(oddKeys, "tag:shoes") {
		members := append(names(1500, "zahraah:prod:product:%d"), oddKeys[:3]...)
		members = slices.DeleteFunc(members, func(m string) bool { return m == set })
		fill(t, c.Client, members...)
		fill(t, c.Client, leases(members...)...)
		addMembers(t, c.Client, set, members...)
		if n, err := take(t.Context(), k, set, uint64(id), unheard); err != nil || n < int64(len(members)) {
			t.Fatalf("%q: %d members, %v", set, n, err)
		}
		wantLeft(t, c.Client, slices.Concat(members, leases(members...), []string{set, keyspace.PrivateName(set, uint64(id))}))
	}
}

// A set in a slot that is on its way cannot be renamed, and waits alone.
func testClusterTakeSetsMoving(t *testing.T, c *testCluster, k *keyspace.Keyspace) {
	requests := []keyspace.SetRequest{{Set: "tag:{moving}", ID: 1}}
	for i, set := range names(50, "tag:%d") {
		requests = append(requests, keyspace.SetRequest{Set: set, ID: uint64(i)})
	}
	for _, r := range requests {
		fill(t, c.Client, r.Set+":member")
		addMembers(t, c.Client, r.Set, r.Set+":member")
	}
	from := c.owner("tag:{moving}")
	to := (from + 1) % len(c.Nodes)
	setSlot := func(node int, args ...any) {
		t.Helper()
		args = append([]any{"cluster", "setslot", int(protocol.Slot("tag:{moving}"))}, args...)
		if err := c.Direct[node].Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	setSlot(to, "importing", c.IDs[from])
	setSlot(from, "migrating", c.IDs[to])
	for round, moving := range []bool{true, false} {
		if !moving {
			setSlot(from, "stable")
			setSlot(to, "stable")
		}
		taken, err := k.Sets.TakeSets(t.Context(), requests, unheard)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range taken.Sets {
			if moving && i == 0 {
				wantOutage(t, s.Err, keyspace.StateMoving)
				wantLeft(t, c.Client, []string{"tag:{moving}", "tag:{moving}:member"}, "tag:{moving}", "tag:{moving}:member")
				continue
			}
			if s.Err != nil {
				t.Errorf("round %d: %q: %v", round, requests[i].Set, s.Err)
			}
			wantLeft(t, c.Client, []string{requests[i].Set, requests[i].Set + ":member"})
		}
	}
}

// While a slot is on its way, some of its names are here and some there.
func testClusterMovingSlot(t *testing.T, c *testCluster, k *keyspace.Keyspace) {
	keys := names(40, "user:{moving}:%d")
	from := c.owner(keys[0])
	to := (from + 1) % len(c.Nodes)
	slot := int(protocol.Slot(keys[0]))
	do := func(node int, args ...any) {
		t.Helper()
		if err := c.Direct[node].Do(t.Context(), append([]any{"cluster", "setslot", slot}, args...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// A node with other keys of the slot would refuse to give it away.
	for _, d := range c.Direct {
		if err := d.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.Beacons.CheckBeacon(t.Context()); !errors.As(err, new(*keyspace.Loss)) {
		t.Errorf("flushing all nodes is taken for %v", err)
	}
	// Keys stand at the old node, as do some of the leases; the others are taken at the new one. Of
	// the last ten there is neither.
	fill(t, c.Client, keys[:30]...)
	fill(t, c.Client, leases(keys[:10]...)...)
	do(to, "importing", c.IDs[from])
	do(from, "migrating", c.IDs[to])
	fill(t, c.Client, leases(keys[10:20]...)...)

	all := targets(append(keys, "elsewhere")...)
	all[3].Hold, all[13].Hold = time.Minute, time.Minute
	mustUnlink(t, k, all)
	wantLeft(t, c.Client, keys)
	wantLeft(t, c.Client, leases(keys...))
	wantLeft(t, c.Client, tombstones(keys...), tombstones(keys[3], keys[13])...)
	if c.errorsSeen(t, "TRYAGAIN") == 0 {
		t.Error("nothing was split: the test has lost its point")
	}

	// The slot moves, which the client does not know yet.
	for _, tombstone := range tombstones(keys[3], keys[13]) {
		if n, err := c.Client.Unlink(t.Context(), tombstone).Result(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	do(to, "node", c.IDs[to])
	do(from, "node", c.IDs[to])
	fill(t, c.Client, keys...)
	mustUnlink(t, k, targets(keys...))
	wantLeft(t, c.Client, keys)
}

// A master that is gone without a replica is an outage for its keys, and as soon as the nodes agree
// that it is gone for all keys, since they are to cover all slots.
func testClusterMasterLost(t *testing.T, c *testCluster) {
	k := open(t, keyspace.Options{Redis: at(c.URL()), Timeout: 200 * time.Millisecond})
	k.Sweeper.BeImpatient()
	tags := c.tags()
	there, here := "lost:{"+tags[0]+"}", "lost:{"+tags[1]+"}"
	fill(t, c.Client, here, there)
	if err := c.Nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	away := []string{keyspace.StateNetwork, keyspace.StateTimeout, keyspace.StateClusterDown}
	if done, err := k.Unlinker.Unlink(t.Context(), targets(here, there)); err != nil {
		wantOutage(t, err, away...)
	} else {
		wantAway(t, done.Failures, 1)
	}
	wantOutage(t, k.Nodes.Ping(t.Context()), away...)
	_, err := k.Sweeper.Sweep(t.Context(), []string{"lost:*"}, nil)
	wantOutage(t, err, away...)
	testenv.Eventually(t, "the nodes' agreement", func() bool {
		done, err := k.Unlinker.Unlink(t.Context(), targets(here))
		return err != nil || len(done.Failures) > 0
	})

	if err := c.Nodes[0].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "recovery", func() bool {
		_, checkErr := k.Beacons.CheckBeacon(t.Context())
		done, err := k.Unlinker.Unlink(t.Context(), targets(here, there))
		return checkErr == nil && err == nil && len(done.Failures) == 0
	})
}

// wantAway checks that the targets with the given indices, and no others, failed by their master's
// outage.
func wantAway(t *testing.T, failures []keyspace.Failure, indices ...int) {
	t.Helper()
	var got []int
	for _, f := range failures {
		got = append(got, f.Index)
		if !errors.As(f.Err, new(*keyspace.Outage)) {
			t.Errorf("target %d failed by %v, want an outage", f.Index, f.Err)
		}
	}
	if !slices.Equal(got, indices) {
		t.Fatalf("targets %v failed, want %v", got, indices)
	}
}

// A deadline that had passed before anything was sent says nothing about a master.
func TestClusterBlamesNobodyForTheCallersDeadline(t *testing.T) {
	t.Parallel()
	c := startCluster(t, false)
	k := open(t, keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour})
	tags := c.tags()
	all := targets("a:{"+tags[0]+"}", "a:{"+tags[1]+"}", "a:{"+tags[2]+"}")
	mustUnlink(t, k, all)
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := k.Unlinker.Unlink(over, all)
	wantOutage(t, err, keyspace.StateTimeout)
	_, err = k.Publisher.Publish(over, "channel", protocol.FormatEvent, keyspace.News{Keys: []string{"a"}})
	wantOutage(t, err, keyspace.StateTimeout)
	if away := k.Shards.Away(); len(away) > 0 {
		t.Errorf("away are %q", away)
	}
}
