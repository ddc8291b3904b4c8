package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/worker"
)

// holdMap has entities that make the same key stale, with and without hold.
const holdMap = `
version: 1
publish: {channel: "cache:invalidate"}
entities:
  held:   {keys: ["shop:held:{id}"], tags: ["t{id}"], patterns: ["shop:list:{id}:*"], sets: ["tag:{id}"], hold: 1h}
  brief:  {keys: ["shop:held:{id}"], tags: ["t{id}"], hold: 1s}
  plain:  {keys: ["shop:held:{id}"], tags: ["t{id}"]}
  sweeps: {patterns: ["shop:held:*"], sets: ["tag:{id}"]}
`

// checkTombstone checks that key has a tombstone that lives for 50 minutes to an hour.
func (w *world) checkTombstone(key string) {
	w.t.Helper()
	name, _ := protocol.HoldKey(key)
	if ttl := w.redis.PTTL(w.t.Context(), name).Val(); ttl > time.Hour || ttl < 50*time.Minute {
		w.t.Errorf("the tombstone of %s lives for %v", key, ttl)
	}
}

// endHold expires the tombstone of a key.
func (w *world) endHold(key string) {
	w.t.Helper()
	name, _ := protocol.HoldKey(key)
	if err := w.redis.PExpire(w.t.Context(), name, time.Millisecond).Err(); err != nil {
		w.t.Fatal(err)
	}
	testenv.Eventually(w.t, "the tombstone is gone", func() bool { return w.redis.Exists(w.t.Context(), name).Val() == 0 })
}

// Sentence 16: a tombstone keeps readers from storing values until its end, even if the key is
// invalidated in other ways meanwhile.
func TestHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, holdMap)
	r := w.worker(worker.Config{})
	// within less, a busy Redis may not store
	c, err := cache.New(cache.Config{Redis: w.redis, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	policies := map[string]*cache.Policy{"shop:held:1": cache.For(time.Hour), "tagged": cache.For(time.Hour).Tagged("t1")}
	stored := func() (n int64) {
		t.Helper()
		for key, policy := range policies {
			value, err := cache.Fetch(t.Context(), c, key, func(context.Context) (string, error) { return "of a replica", nil }, policy)
			if err != nil || value != "of a replica" {
				t.Errorf("%q, %v", value, err)
			}
			n += w.redis.Exists(t.Context(), key).Val()
		}
		return n
	}
	if n := stored(); n != 2 {
		t.Fatalf("%d entries are stored before the hold", n)
	}
	for _, entity := range []string{"held", "plain", "brief", "sweeps"} {
		if entity == "sweeps" {
			name, _ := protocol.HoldKey("shop:held:1")
			w.redis.SAdd(t.Context(), "tag:1", "shop:held:1", name)
		}
		w.enqueue(outbox.Invalidation{Entity: entity, ID: "1"})
		r.drain(t)
		w.checkTombstone("shop:held:1")
		w.checkTombstone("stamp:t1")
		c.Delete(t.Context(), "tagged")
		if n := stored(); n != 0 {
			t.Errorf("%d entries are stored after %s", n, entity)
		}
	}
	w.endHold("shop:held:1")
	w.endHold("stamp:t1")
	if n := stored(); n != 2 {
		t.Errorf("%d entries are stored after the hold", n)
	}
}

// Sentences 11 and 16: what Redis has lost is held again when it is unlinked again, for as long as
// at first, and what its sweeps find.
func TestHoldsAreHealed(t *testing.T) {
	t.Parallel()
	w, past := aWorldInTime(t)
	w.writeMap(holdMap)
	keys := texts(2, "shop:held:%d")
	w.set(keys...)
	past.remember()
	for _, entity := range []string{"held", "plain"} {
		w.enqueue(outbox.Invalidation{Entity: entity, ID: "1"}, outbox.Invalidation{Entity: entity, ID: "2"})
		w.worker(worker.Config{BatchRows: 1}).drain(t)
	}
	w.exec("DELETE FROM cache_outbox_sweeps")
	past.goBack()
	wantLeft(t, w, keys...)
	r := w.worker(worker.Config{})
	if _, err := r.DrainRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{keys[0], keys[1], "stamp:t1", "stamp:t2"} {
		w.checkTombstone(key)
	}
	if n := w.redis.Exists(t.Context(), keys...).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if n := w.count("cache_outbox_sweeps WHERE hold_ms = 3600000"); n != 4 {
		t.Errorf("%d sweeps are asked for again with their hold", n)
	}
}

// Sentences 1 and 16: a worker that dies between the tombstone and the UNLINK leaves both the row
// and the tombstone.
func TestDeathAfterTheTombstone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, holdMap)
	server := w.onOwnRedis()
	admin := w.url
	rules := strings.Fields("acl setuser worker on >secret ~* &* +@all -unlink")
	args := make([]any, len(rules))
	for i := range rules {
		args[i] = rules[i]
	}
	if err := w.redis.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	w.set("shop:held:1")
	w.enqueue(outbox.Invalidation{Entity: "held", ID: "1"})
	w.url = "redis://worker:secret@" + server.Addr()
	if _, err := w.worker(worker.Config{}).DrainRows(t.Context()); err == nil || !strings.Contains(err.Error(), "+unlink") {
		t.Fatalf("drain: %v", err)
	}
	w.checkTombstone("shop:held:1")
	if n := w.count("cache_outbox"); n != 1 || w.redis.Exists(t.Context(), "shop:held:1").Val() != 1 {
		t.Errorf("%d rows wait", n)
	}
	w.url = admin
	if _, err := w.worker(worker.Config{}).DrainRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.checkTombstone("shop:held:1")
	if n := w.count("cache_outbox"); n != 0 || w.redis.Exists(t.Context(), "shop:held:1").Val() != 0 {
		t.Errorf("%d rows wait", n)
	}
}
