package keyspace_test

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// sweepMeanwhile sweeps all names that begin with "sweep:", which are 40,000 keys with their leases
// at the first master and few at the others. It calls happen when a good part of the first master
// is scanned and the others are finished; the sweep waits for it. It checks that exactly these
// names are gone.
func sweepMeanwhile(t *testing.T, c *testCluster, k *keyspace.Keyspace, happen func()) keyspace.SweepResult {
	t.Helper()
	k.Sweeper.WatchEveryPage()
	tags := c.tags()
	keys := append(names(40_000, "sweep:{"+tags[0]+"}:%d"), names(20, "sweep:{"+tags[1]+"}:%d")...)
	keys = append(keys, names(20, "sweep:{"+tags[2]+"}:%d")...)
	staying := names(3000, "stay:%d")
	for _, list := range [][]string{keys, leases(keys...), staying, leases(staying...)} {
		fill(t, c.Client, list...)
	}
	done := false
	watch := func(p keyspace.Progress) {
		if !done && p.Scanned > 20_000 {
			done = true
			happen()
		}
	}
	var result keyspace.SweepResult
	// after a loss, or beyond its patience, it is the caller's to repeat
	testenv.Eventually(t, "a sweep", func() bool {
		var err error
		result, err = k.Sweeper.Sweep(t.Context(), []string{"sweep:*"}, watch)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	if !done {
		t.Fatal("nothing happened meanwhile")
	}
	testenv.Eventually(t, "a client that knows the nodes", func() bool {
		c.Client.ReloadState(t.Context())
		return c.Client.Exists(t.Context(), staying[0]).Err() == nil && c.Client.ForEachMaster(t.Context(), pinged) == nil
	})
	wantLeft(t, c.Client, append(keys, leases(keys...)...))
	staying = append(staying, leases(staying...)...)
	wantLeft(t, c.Client, staying, staying...)
	return result
}

// tags are hash tags, one of each master's.
func (c *testCluster) tags() []string {
	tags := make([]string, 3)
	for i := 0; slices.Contains(tags, ""); i++ {
		tag := names(i+1, "t%d")[i]
		tags[c.owner(tag)] = tag
	}
	return tags
}

// A master that hands over to its replica still answers SCAN. Its scan does not count, and its
// successor is scanned from the start.
func TestSweepHandover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, true)
	k := open(t, keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour, SweepShare: 1})
	result := sweepMeanwhile(t, c, k, func() {
		testenv.Eventually(t, "the handover", func() bool { return c.Direct[3].Do(t.Context(), "cluster", "failover").Err() == nil })
		c.wantRole(t, 3, "master")
		c.wantRole(t, 0, "slave")
		c.wantMaster(t, 3)
	})
	if result.Again == 0 {
		t.Error("nothing was scanned again: the test has lost its point")
	}
}

// A master that dies is replaced by its replica, which is scanned from the start.
func TestSweepFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, true)
	k := open(t, keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour, SweepShare: 1})
	result := sweepMeanwhile(t, c, k, func() {
		if err := c.Nodes[0].Kill(); err != nil {
			t.Fatal(err)
		}
	})
	if result.Again == 0 {
		t.Error("nothing was scanned again: the test has lost its point")
	}
}

// Keys that move to a master whose scan has ended are found there, whether the slot has arrived or
// is still moving, and even if that master is new and has no slot yet.
func TestSweepMigration(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{true, false} {
		t.Run(map[bool]string{true: "arrived", false: "on its way"}[arrives], func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, false)
			k := open(t, keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour, SweepShare: 1})
			tag := c.tags()[0]
			result := sweepMeanwhile(t, c, k, func() { c.Migrate(t, int(protocol.Slot(tag)), 0, 1, arrives) })
			if result.Again == 0 {
				t.Error("nothing was scanned again: the test has lost its point")
			}
		})
	}
}

// A slot leaves its master before the scan reaches it, and is back before the scan ends. It returns
// by another migration, or the first one is undone.
func TestSweepRoundTrip(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(t *testing.T, c *testCluster, slot, from, to int){
		"returns": func(t *testing.T, c *testCluster, slot, from, to int) { c.Move(t, slot, from, to) },
		"is undone": func(t *testing.T, c *testCluster, slot, from, to int) {
			if from == 0 {
				c.Migrate(t, slot, from, to, false)
			} else {
				c.undo(t, slot, from, to)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, false)
			k := open(t, keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour, SweepShare: 1})
			k.Sweeper.WatchEveryPage()
			tags := c.tagsOf(0, 3) // scanned in this order, where each slot has a table of its own
			keys := names(1000, "sweep:{"+tags[1]+"}:%d")
			fill(t, c.Client, append(names(20_000, "stay:{"+tags[0]+"}:%d"), names(40_000, "stay:{"+tags[2]+"}:%d")...)...)
			fill(t, c.Client, append(keys, leases(keys...)...)...)
			slot, step := int(protocol.Slot(tags[1])), 0
			result, err := k.Sweeper.Sweep(t.Context(), []string{"sweep:*"}, func(p keyspace.Progress) {
				switch {
				case step == 0 && p.Scanned > 8_000:
					step++
					move(t, c, slot, 0, 1)
				case step == 1 && p.Scanned > 45_000:
					step++
					move(t, c, slot, 1, 0)
				}
			})
			if err != nil || step != 2 {
				t.Fatalf("%v after %d moves", err, step)
			}
			wantLeft(t, c.Client, append(keys, leases(keys...)...))
			if result.Again != 1 {
				t.Errorf("%d masters were scanned again", result.Again)
			}
		})
	}
}

// While slots move one by one, each to the next master, a sweep follows those that it has not seen.
// It does not scan again for every move, and with CLUSTERSCAN not even a whole master.
func TestSweepWhileSlotsMove(t *testing.T) {
	t.Parallel()
	c := startCluster(t, false)
	sweepWhileMoving(t, c, func(slot, from, to int) { c.Migrate(t, slot, from, to, true) }, math.MaxInt64)
	if c.MovesAtomically(t) {
		most := int64(math.MaxInt64)
		if c.scansSlots(t) {
			most = 70_000
		}
		c := startCluster(t, false)
		sweepWhileMoving(t, c, func(slot, from, to int) { c.Move(t, slot, from, to) }, most)
	}
}

// sweepWhileMoving sweeps twice while slots move, and scans at most so many names.
func sweepWhileMoving(t *testing.T, c *testCluster, move func(slot, from, to int), most int64) {
	t.Helper()
	k := open(t, keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour})
	keys, staying := names(2000, "sweep:%d"), names(60_000, "stay:%d")
	fill(t, c.Client, append(keys, staying...)...)
	ctx, stop := context.WithCancel(t.Context())
	var movers sync.WaitGroup
	moved := make(chan struct{}, 3*16384)
	movers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			from := i % 3
			move(c.First(from)+2000+i/3, from, (from+1)%3) // which a scan does not begin with
			c.agree(t)
			moved <- struct{}{}
		}
	})
	defer movers.Wait()
	defer stop()
	for range 2 {
		<-moved
		began, before := time.Now(), len(moved)
		result, err := k.Sweeper.Sweep(t.Context(), []string{"sweep:*"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s, %d names scanned, %d masters scanned again, %d slots moved", time.Since(began).Round(time.Millisecond), result.Scanned, result.Again, len(moved)-before)
		if result.Again == 0 && !c.scansSlots(t) || result.Again > 9 {
			t.Errorf("%d masters were scanned again", result.Again)
		}
		if result.Scanned > most {
			t.Errorf("%d names were scanned", result.Scanned)
		}
	}
	stop()
	movers.Wait()
	wantLeft(t, c.Client, keys)
}

// scansSlots reports whether the server has CLUSTERSCAN.
func (c *testCluster) scansSlots(t *testing.T) bool {
	t.Helper()
	infos, err := c.Direct[0].Do(t.Context(), "command", "info", "clusterscan").Slice()
	if err != nil {
		t.Fatal(err)
	}
	return infos[0] != nil
}

// A master without CLUSTERSCAN, as during an upgrade, is scanned as a whole. It is not asked again
// for every sweep. Here it is its account that may not, which a trial of its rights names.
func TestSweepWithoutClusterscan(t *testing.T) {
	t.Parallel()
	c := startCluster(t, false)
	k := open(t, keyspace.Options{Redis: at(c.URL()), BeaconTTL: time.Hour})
	wantLacks := func(addrs ...string) {
		t.Helper()
		rights, err := k.Account.TryRights(t.Context(), keyspace.Trial{Scans: true})
		if err != nil {
			t.Fatal(err)
		}
		var lacks []string
		for _, r := range rights {
			if r.Rule == "+clusterscan" && r.Loss != "" {
				lacks = append(lacks, r.Node)
			} else if r.Rule != "" || r.Err != nil {
				t.Errorf("%+v", r)
			}
		}
		if !slices.Equal(lacks, addrs) {
			t.Errorf("%q lack CLUSTERSCAN, want %q", lacks, addrs)
		}
	}
	wantLacks()
	if !c.scansSlots(t) {
		return // other tests sweep there
	}
	setUser(t, c.Direct[1], "default", "-clusterscan")
	wantLacks(c.Nodes[1].Addr())
	if err := c.Direct[1].Do(t.Context(), "acl", "log", "reset").Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		keys := names(5000, "sweep:%d")
		fill(t, c.Client, keys...)
		result, err := k.Sweeper.Sweep(t.Context(), []string{"sweep:*"}, nil)
		if err != nil || result.Again > 0 || result.Patterns[0].Matched != int64(len(keys)) {
			t.Fatalf("%+v, %v", result, err)
		}
		wantLeft(t, c.Client, keys)
	}
	if refused := c.Direct[1].Do(t.Context(), "acl", "log").Val().([]any); len(refused) != 1 {
		t.Errorf("the ACL log has %d entries", len(refused))
	}
}

// agree waits until all masters know of the last move.
func (c *testCluster) agree(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "the masters' agreement", func() bool {
		epochs := map[string]bool{}
		for _, d := range c.Direct {
			for line := range strings.Lines(d.ClusterInfo(t.Context()).Val()) {
				if strings.HasPrefix(line, "cluster_current_epoch:") {
					epochs[line] = true
				}
			}
		}
		return len(epochs) == 1
	})
}

// undo returns the keys of a slot that have moved, and ends its migration.
func (c *testCluster) undo(t *testing.T, slot, from, to int) {
	t.Helper()
	end := func(master int) {
		t.Helper()
		if err := c.Direct[master].Do(t.Context(), "cluster", "setslot", slot, "stable").Err(); err != nil {
			t.Fatal(err)
		}
	}
	end(to) // which takes keys back only then
	keys, err := c.Direct[from].ClusterGetKeysInSlot(t.Context(), slot, 10_000).Result()
	if err != nil {
		t.Fatal(err)
	}
	args := []any{"migrate", "127.0.0.1", c.Nodes[to].Port(), "", 0, 60_000, "replace", "keys"}
	for _, key := range keys {
		args = append(args, key)
	}
	if err := c.Direct[from].Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	end(from)
}

// tagsOf returns hash tags of a master, in the order of their slots, far from each other.
func (c *testCluster) tagsOf(master, n int) (tags []string) {
	for part := range n {
		low, high := c.First(master)+part*1500, c.First(master)+part*1500+100
		for i := 0; len(tags) == part; i++ {
			if slot := int(protocol.Slot(strconv.Itoa(i))); low <= slot && slot < high {
				tags = append(tags, strconv.Itoa(i))
			}
		}
	}
	return tags
}

// wantRole waits until a node has a role.
func (c *testCluster) wantRole(t *testing.T, node int, role string) {
	t.Helper()
	testenv.Eventually(t, "a "+role, func() bool { return c.Direct[node].Do(t.Context(), "role").Val().([]any)[0] == role })
}

// wantMaster waits until every node knows that a node is a master with slots.
func (c *testCluster) wantMaster(t *testing.T, node int) {
	t.Helper()
	for _, d := range c.Direct {
		testenv.Eventually(t, "the nodes' agreement", func() bool {
			for line := range strings.Lines(d.ClusterNodes(t.Context()).Val()) {
				if f := strings.Fields(line); f[0] == c.IDs[node] {
					return strings.Contains(f[2], "master") && len(f) > 8
				}
			}
			return false
		})
	}
}

func pinged(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() }
