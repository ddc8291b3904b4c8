//go:build soak

package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// A six-node Cluster hands a master over, loses one and moves a slot during writes. In the end
// every key of a committed row is gone, exact keys and lists, and no row waits or is dead-lettered.
func TestClusterInMidRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "version: 1\nlease: 1s\npublish: {channel: \"cache:invalidate\"}\nentities:\n"+
		"  thing: {keys: [\"shop:thing:{id}\"]}\n  shelf: {patterns: [\"shop:shelf:{id}:*\"]}\n")
	c := testenv.OwnCluster(t, 3, true)
	w.url = c.URL()
	r := w.worker(worker.Config{})
	r.start(t)

	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var written []string
	group.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			keys := []string{fmt.Sprintf("shop:thing:%d", i)}
			inv := outbox.Invalidation{Entity: "thing", ID: fmt.Sprint(i)}
			if i%50 == 0 {
				inv.Entity = "shelf"
				keys = []string{fmt.Sprintf("shop:shelf:%d:a", i), fmt.Sprintf("shop:shelf:%d:b", i)}
			}
			if !setAll(ctx, c.Client, keys) { // a key that is not there proves nothing
				continue
			}
			w.enqueue(inv)
			written = append(written, keys...)
		}
	})
	settled := func(n int) func() bool {
		was := w.count("cache_outbox_journal")
		return func() bool { return w.count("cache_outbox_journal") >= was+n }
	}
	testenv.Eventually(t, "batches", settled(20))
	testenv.Eventually(t, "the handover", func() bool { return c.Direct[3].Do(ctx, "cluster", "failover").Err() == nil })
	testenv.Eventually(t, "the new master", func() bool { return role(ctx, c.Direct[3]) == "master" })
	testenv.Eventually(t, "batches", settled(20))
	if err := c.Nodes[1].Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the failover", func() bool { return role(ctx, c.Direct[4]) == "master" })
	testenv.Eventually(t, "batches", settled(20))
	from := 2
	if role(t.Context(), c.Direct[from]) != "master" {
		from = 5 // its replica
	}
	c.Migrate(t, c.First(2)+7, from, 3, true)
	testenv.Eventually(t, "batches", settled(20))
	stop()
	group.Wait()

	testenv.Eventually(t, "nothing waits", func() bool {
		return w.count("cache_outbox")+w.count("cache_outbox_delayed")+w.count("cache_outbox_sweeps") == 0
	})
	if n := w.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	if len(written) < 100 {
		t.Errorf("only %d keys were written: the test has lost its point", len(written))
	}
	testenv.Eventually(t, "a client that knows the nodes", func() bool {
		c.Client.ReloadState(t.Context())
		return c.Client.ForEachMaster(t.Context(), func(ctx context.Context, m *redis.Client) error { return m.Ping(ctx).Err() }) == nil
	})
	for _, key := range written {
		n, err := c.Client.Exists(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			t.Errorf("%s is there", key)
		}
	}
}

// setAll sets keys and reports whether all of them exist.
func setAll(ctx context.Context, c *redis.ClusterClient, keys []string) bool {
	for _, key := range keys {
		if c.Set(ctx, key, "old", 0).Err() != nil {
			return false
		}
	}
	return true
}

// role returns what a node takes itself for, or empty.
func role(ctx context.Context, c *redis.Client) string {
	reply, err := c.Do(ctx, "role").Slice()
	if err != nil || len(reply) == 0 {
		return ""
	}
	name, _ := reply[0].(string)
	return name
}
