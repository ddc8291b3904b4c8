package keyspace_test

import (
	"context"
	"slices"
	"strings"
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
