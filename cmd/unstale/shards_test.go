package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// Two shards of one keyspace are two outboxes with one Redis and one map: no conflict. If one is a
// copy of the other, with its ID, each worker reports that.
func TestShardsShareRedisAndMap(t *testing.T) {
	t.Parallel()
	one, two := newWorld(t), newWorld(t)
	two.env["REDIS_URL"], two.env["UNSTALE_MAP"] = one.env["REDIS_URL"], one.env["UNSTALE_MAP"]
	shards := []*world{one, two}
	databases := func(code int, text string) {
		t.Helper()
		for _, w := range shards {
			testenv.Eventually(t, text, func() bool {
				r := call(t, w.env, "doctor", "--check", "databases")
				return r.code == code && strings.Contains(r.out, text)
			})
		}
	}
	first, second := one.start("--worker", "first"), two.start("--worker", "second")
	for i, w := range shards {
		one.setKeys(i + 1)
		w.enqueue(i + 1)
		testenv.Eventually(t, "the keys go", func() bool { return one.keys() == 0 && w.count("cache_outbox") == 0 })
	}
	databases(exitDone, "no other database on this Redis has the ID of this one")
	for _, r := range []*running{first, second} {
		if r.log.has("databases conflict in redis") {
			t.Error(r.log)
		}
	}
	second.signal(syscall.SIGTERM)
	second.wantExit(exitDone)
	r := call(t, one.env, "status", "--json")
	_, id, _ := strings.Cut(r.out, `"source": "`)
	if _, err := two.db.Exec("UPDATE cache_outbox_source SET id = ?", id[:32]); err != nil {
		t.Fatal(err)
	}
	second = two.start("--worker", "second")
	databases(exitFail, "another database has the ID of this one")
	for _, r := range []*running{first, second} {
		r.until("it is said", func() bool { return r.log.has("databases conflict in redis") })
	}
}
