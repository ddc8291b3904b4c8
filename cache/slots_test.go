package cache_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// The slot of a key moves, or its master hands over, while a load that has read the old row is
// paused. No old value is stored at any node, later callers get the new row, and the key is cached
// again once the slot has arrived.
func TestRacesInACluster(t *testing.T) {
	t.Parallel()
	const key = "k"
	slot := int(protocol.Slot(key))
	for _, c := range []struct {
		name    string
		between func(w *world, cluster *testenv.Cluster, from, to int)
	}{
		{"the slot has moved before the commit", func(w *world, cluster *testenv.Cluster, from, to int) {
			cluster.Migrate(w, slot, from, to, true)
			w.commit("new", key)
		}},
		{"the slot moves after the commit", func(w *world, cluster *testenv.Cluster, from, to int) {
			w.commit("new", key)
			cluster.Migrate(w, slot, from, to, true)
		}},
		{"the slot is on its way", func(w *world, cluster *testenv.Cluster, from, to int) {
			cluster.Migrate(w, slot, from, to, false)
			w.commit("new", key)
		}},
		{"the master hands over", func(w *world, cluster *testenv.Cluster, from, to int) {
			w.commit("new", key)
			replica := cluster.Direct[2+from]
			testenv.Eventually(w, "the handover", func() bool { return replica.Do(w.Context(), "cluster", "failover").Err() == nil })
			testenv.Eventually(w, "the new master", func() bool {
				return strings.Contains(replica.Info(w.Context(), "replication").Val(), "role:master")
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := testenv.OwnCluster(t, 2, true)
			w := worldAt(t, cluster.URL())
			from, to := 0, 1
			if slot >= cluster.First(1) {
				from, to = 1, 0
			}
			config := cache.Config{Redis: cluster.Client, Lease: time.Minute}
			same, other := w.cache(config), w.cache(config)
			p := w.db.paused()
			early := fetchBeside(t, same, key, p.load, nil)
			<-p.read
			c.between(w, cluster, from, to)
			late := fetchBeside(t, same, key, w.db.read, nil)
			testenv.Eventually(t, "the late caller to wait or to have loaded", func() bool { return same.Statistics().Misses >= 2 })
			wantFetched(t, "a caller in another process", other, key, w.db.read, "new")
			close(p.release)
			wantAnswer(t, "the caller from before", early, "old")
			wantAnswer(t, "the caller from after", late, "new")
			for i, node := range cluster.Direct {
				if err := node.Do(t.Context(), "readonly").Err(); err != nil && i >= 2 {
					t.Fatal(err)
				}
				text, err := node.Do(t.Context(), "get", key).Text()
				if strings.Contains(text, "old") {
					t.Errorf("node %d holds %s", i, text)
				} else if err != nil && err != redis.Nil && !strings.HasPrefix(err.Error(), "MOVED") && !strings.HasPrefix(err.Error(), "ASK") {
					t.Errorf("node %d: %v", i, err)
				}
			}
			wantFetched(t, "afterwards", other, key, w.db.read, "new")
		})
	}
}
