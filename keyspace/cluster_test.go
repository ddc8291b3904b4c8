package keyspace_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/keyspace"
)

// A testCluster is three masters, each with a third of the slots.
type testCluster struct{ *testenv.Cluster }

// owner is the node that a key belongs to while no slot has moved.
func (c *testCluster) owner(key string) int { return int(keyspace.Slot(key)) * 3 / 16384 }

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
	k := open(t, keyspace.Options{URL: c.URL(), BeaconTTL: time.Hour})
	t.Run("Slot", func(t *testing.T) {
		for _, key := range append(names(200, "key:%d"), oddKeys...) {
			if want := c.Direct[0].ClusterKeySlot(t.Context(), key).Val(); int64(keyspace.Slot(key)) != want {
				t.Errorf("%q is in slot %d, want %d", key, keyspace.Slot(key), want)
			}
		}
	})
	t.Run("Unlink", func(t *testing.T) { testClusterUnlink(t, c, k) })
	t.Run("Publish", func(t *testing.T) { testClusterPublish(t, c, k) })
	t.Run("Sweep", func(t *testing.T) { testClusterSweep(t, c, k) })
	t.Run("TakeSet", func(t *testing.T) { testClusterTakeSet(t, c, k) })
	t.Run("MovingSlot", func(t *testing.T) { testClusterMovingSlot(t, c, k) })
	t.Run("WrongMode", func(t *testing.T) {
		one := open(t, keyspace.Options{URL: c.Nodes[0].URL()})
		_, err := one.Unlink(t.Context(), targets(names(10, "key:%d")...))
		wantOutage(t, err, keyspace.StateWrongMode)
	})
	t.Run("Wait", func(t *testing.T) { testClusterWait(t, c) })
	t.Run("MasterLost", func(t *testing.T) { testClusterMasterLost(t, c) })
}

// No command crosses slots or goes to the wrong node (guarantee 6, K5).
func testClusterUnlink(t *testing.T, c *testCluster, k *keyspace.Keyspace) {
	if err := k.Ping(t.Context()); err != nil {
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
	wantLeft(t, c.Client, leases(keys...), leases(keys[0], keys[1], keys[6000])...)
	wantLeft(t, c.Client, []string{"bystander"}, "bystander")
	if c.errorsSeen(t, "CROSSSLOT") != crossed || c.errorsSeen(t, "MOVED") != moved {
		t.Error("a command crossed slots or went to the wrong node")
	}
}

// Subscribers on every node hear one epoch in order.
func testClusterPublish(t *testing.T, c *testCluster, k *keyspace.Keyspace) {
	var hears []func() string
	for _, d := range c.Direct {
		hears = append(hears, subscribe(t, d, "cache:invalidate"))
	}
	keys := names(5000, "key:%d")
	for range 2 {
		if n, err := k.Publish(t.Context(), "cache:invalidate", invalidation.FormatEvent, keys, []string{"p:*"}); n != 6 || err != nil {
			t.Fatalf("%d messages, %v, want 6", n, err)
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

func testClusterSweep(t *testing.T, c *testCluster, k *keyspace.Keyspace) {
	keys := append(names(6000, "sweep:a:%d"), "sweep:a:{7}", "sweep:a:}x")
	staying := names(3000, "sweep:b:%d")
	for _, list := range [][]string{keys, leases(keys...), leases("sweep:a:absent"), staying, leases(staying...)} {
		fill(t, c.Client, list...)
	}
	got, err := k.Sweep(t.Context(), []string{"sweep:a:*", "nothing:*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantLeft(t, c.Client, slices.Concat(keys, leases(keys...), leases("sweep:a:absent")))
	wantLeft(t, c.Client, append(staying, leases(staying...)...), append(staying, leases(staying...)...)...)
	if want := int64(len(keys) + len(leases(keys...)) + 1); got.Unlinked != want {
		t.Errorf("%+v, want %d unlinked", got, want)
	}
}

func testClusterTakeSet(t *testing.T, c *testCluster, k *keyspace.Keyspace) {
	for id, set := range append(oddKeys, "tag:shoes") {
		members := append(names(1500, "zahraah:prod:product:%d"), oddKeys[:3]...)
		members = slices.DeleteFunc(members, func(m string) bool { return m == set })
		fill(t, c.Client, members...)
		fill(t, c.Client, leases(members...)...)
		addMembers(t, c.Client, set, members...)
		if n, err := k.TakeSet(t.Context(), set, uint64(id), unheard); err != nil || n.Members < int64(len(members)) {
			t.Fatalf("%q: %d members, %v", set, n.Members, err)
		}
		wantLeft(t, c.Client, slices.Concat(members, leases(members...), []string{set, keyspace.PrivateName(set, uint64(id))}))
	}
}

// While a slot is on its way, some of its names are here and some there.
func testClusterMovingSlot(t *testing.T, c *testCluster, k *keyspace.Keyspace) {
	keys := names(40, "user:{moving}:%d")
	from := c.owner(keys[0])
	to := (from + 1) % len(c.Nodes)
	slot := int(keyspace.Slot(keys[0]))
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
	if _, err := k.Beat(t.Context()); !errors.As(err, new(*keyspace.Loss)) {
		t.Errorf("flushing all nodes is taken for %v", err)
	}
	// Keys stand at the old node, as do some of the leases; the others are
	// taken at the new one. Of the last ten there is neither.
	fill(t, c.Client, keys[:30]...)
	fill(t, c.Client, leases(keys[:10]...)...)
	do(to, "importing", c.IDs[from])
	do(from, "migrating", c.IDs[to])
	fill(t, c.Client, leases(keys[10:20]...)...)

	all := targets(append(keys, "elsewhere")...)
	all[3].Hold, all[13].Hold = time.Minute, time.Minute
	mustUnlink(t, k, all)
	wantLeft(t, c.Client, keys)
	wantLeft(t, c.Client, leases(keys...), leases(keys[3], keys[13])...)
	if c.errorsSeen(t, "TRYAGAIN") == 0 {
		t.Error("nothing was torn: the test has lost its point")
	}

	// The slot moves, which the client doesn't know yet.
	for _, tombstone := range leases(keys[3], keys[13]) {
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

// A master that is gone without a replica is an outage for its keys.
func testClusterMasterLost(t *testing.T, c *testCluster) {
	k := open(t, keyspace.Options{URL: c.URL(), Timeout: 200 * time.Millisecond})
	k.BeImpatient()
	here, there := "", ""
	for i := 0; here == "" || there == ""; i++ {
		if key := fmt.Sprintf("lost:%d", i); c.owner(key) == 0 {
			there = key
		} else {
			here = key
		}
	}
	fill(t, c.Client, here, there)
	if err := c.Nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := k.Unlink(t.Context(), targets(here, there))
	wantOutage(t, err, keyspace.StateNetwork, keyspace.StateTimeout, keyspace.StateClusterDown)
	wantOutage(t, k.Ping(t.Context()), keyspace.StateNetwork, keyspace.StateTimeout, keyspace.StateClusterDown)
	_, err = k.Sweep(t.Context(), []string{"lost:*"}, nil)
	wantOutage(t, err, keyspace.StateNetwork, keyspace.StateTimeout, keyspace.StateClusterDown)

	if err := c.Nodes[0].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "recovery", func() bool { _, err := k.Unlink(t.Context(), targets(here, there)); return err == nil })
}
