//go:build soak

package worker_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// Sentence 15: an unavailable shard delays only the rows with keys there, without counting an
// attempt.
func TestShardAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	c := testenv.OwnCluster(t, 3, false, "--cluster-require-full-coverage", "no")
	w.url = c.URL()
	r := w.worker(worker.Config{})
	const n = 60
	keys := texts(n, "shop:thing:%d")
	there := map[string]bool{} // on the first master
	for _, key := range keys {
		slot, err := c.Direct[0].ClusterKeySlot(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		there[key] = int(slot) < c.First(1)
		if err := c.Client.Set(t.Context(), key, "old", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (list []string) {
		for _, key := range keys {
			if found, err := c.Client.Exists(t.Context(), key).Result(); err != nil || found > 0 {
				list = append(list, key)
			}
		}
		return list
	}
	r.start(t)
	testenv.Eventually(t, "the first position", func() bool { return r.log.count("working: mysql and redis answer") == 1 })

	if err := c.Nodes[0].Pause(); err != nil {
		t.Fatal(err)
	}
	w.enqueue(things(n)...)
	testenv.Eventually(t, "the other rows are settled", func() bool { return w.count("cache_outbox") == 0 })
	waiting := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !there[key] })
	if got := w.count("cache_outbox_delayed WHERE attempts = 0 AND reason = 'redis_away' AND error LIKE 'key \"shop:thing:%'"); got != len(waiting) {
		t.Errorf("%d rows wait, wanted %d", got, len(waiting))
	}
	testenv.Eventually(t, "it is said", func() bool { return r.log.count("part of redis is away") == 1 })
	testenv.Eventually(t, "it is noted for status", func() bool {
		return w.count("cache_outbox_workers WHERE state = 'working' AND error LIKE 'part of redis is away: %'") == 1
	})
	for i, key := range keys {
		if there[key] {
			continue
		}
		if found, err := c.Client.Exists(t.Context(), key).Result(); found != 0 || err != nil {
			t.Errorf("%d: %s: %d, %v", i, key, found, err)
		}
	}
	// Rows that come meanwhile are processed.
	w.enqueue(outbox.Invalidation{Entity: "thing", ID: "again"})
	testenv.Eventually(t, "a new row leaves the outbox", func() bool { return w.count("cache_outbox") == 0 })

	if err := c.Nodes[0].Resume(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "all rows are settled", func() bool { return w.count("cache_outbox_delayed") == 0 })
	if got := left(); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
	testenv.Eventually(t, "it is said", func() bool { return r.log.count("all of redis is back") == 1 })
	if dead := w.count("cache_outbox_dead"); dead != 0 {
		t.Errorf("%d dead letters", dead)
	}
	if got := healed(t, r); got != 0 {
		t.Errorf("%d batches were healed", got)
	}
	if got := fmt.Sprint(r.redis.Away()); got != "[]" {
		t.Errorf("away: %s", got)
	}
}

// A row whose lookup fails, and whose keys are on an unavailable shard, waits for the shard without
// counting an attempt, and nothing of it counts as applied. The part of another row is applied.
func TestAPartWhileAShardIsAway(t *testing.T) {
	t.Parallel()
	w := partWorld(t, 1)
	c := testenv.OwnCluster(t, 3, false, "--cluster-require-full-coverage", "no")
	w.url = c.URL()
	ids := map[bool]string{} // by whether the key is on the first master
	for i := 1; len(ids) < 2; i++ {
		slot, err := c.Direct[0].ClusterKeySlot(t.Context(), fmt.Sprint("shop:product:", i)).Result()
		if err != nil {
			t.Fatal(err)
		}
		ids[int(slot) < c.First(1)] = fmt.Sprint(i)
	}
	r := w.worker(worker.Config{})
	r.start(t)
	testenv.Eventually(t, "the first position", func() bool { return r.log.count("working: mysql and redis answer") == 1 })
	if err := c.Nodes[0].Pause(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		w.enqueue(outbox.Invalidation{Entity: "product", ID: id})
	}
	testenv.Eventually(t, "both rows are delayed", func() bool {
		return w.count("cache_outbox_delayed WHERE reason = 'redis_away' AND attempts = 0 AND error NOT LIKE '%applied%' AND entity_id = '"+ids[true]+"'") == 1 &&
			w.count("cache_outbox_delayed WHERE reason = 'lookup_failed' AND attempts > 0 AND error LIKE '%"+partText+"' AND entity_id = '"+ids[false]+"'") == 1
	})
	if n := w.count("cache_outbox_journal WHERE row_count = 1"); n != 1 {
		t.Errorf("%d rows have an entry in the journal", n)
	}
	w.exec("UPDATE switch SET slow = 0")
	if err := c.Nodes[0].Resume(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "both rows are settled", func() bool { return w.count("cache_outbox_delayed WHERE repeated = 0") == 0 })
	if dead := w.count("cache_outbox_dead"); dead != 0 {
		t.Errorf("%d dead letters", dead)
	}
}
