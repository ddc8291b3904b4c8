package worker_test

import (
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const foundMap = `
version: 1
publish: {channel: "cache:invalidate"}
limits: {keys_per_row: 50000}
params:
  many: {lookup: {by: [id], sql: "SELECT i.n, CONCAT(a.n, '-', b.n) FROM numbers AS i, numbers AS a, numbers AS b WHERE i.n IN (?) AND a.n < 405"}}
  long: {lookup: {by: [id], sql: "SELECT i.n, CONCAT(a.n, REPEAT('x', 10000)) FROM numbers AS i, numbers AS a WHERE i.n IN (?)"}}
  each: {lookup: {by: [n], sql: "SELECT i.n, CONCAT(i.n, '-', a.n, REPEAT('x', 1000)) FROM numbers AS i, numbers AS a WHERE i.n IN (?)"}}
entities:
  many:  {params: [many], keys: ["shop:{many}"]}
  long:  {params: [long], keys: ["shop:{long}"]}
  each:  {params: [n, each], keys: ["shop:{each}"]}
  plain: {keys: ["shop:plain:{id}"]}
`

// Sentence 12: a row whose lookups find too much is dead-lettered with its reason before all of it
// is read, and its neighbors are settled.
func TestLookupsThatFindTooMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, foundMap)
	w.exec("CREATE TABLE numbers (n INT PRIMARY KEY)")
	w.exec("INSERT INTO numbers SELECT a.n + 10*b.n + 100*c.n FROM (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) AS a, " +
		"(SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) AS b, " +
		"(SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) AS c")
	ids := make([]int, 40) // 20 of them exist, with 500 values of 1,000 bytes each
	for i := range ids {
		ids[i] = i
	}
	w.set("shop:plain:1")
	w.set("shop:plain:2")
	w.enqueue(outbox.Invalidation{Entity: "plain", ID: "1"},
		outbox.Invalidation{Entity: "many", ID: "1"},
		outbox.Invalidation{Entity: "long", ID: "1"}, outbox.Invalidation{Entity: "long", ID: "3"},
		outbox.Invalidation{Entity: "each", ID: "4", Params: map[string]any{"n": ids}},
		outbox.Invalidation{Entity: "plain", ID: "2"})
	// a busy machine may be slow
	r := w.worker(worker.Config{BatchRows: 6, MaxAttempts: 100})
	r.start(t)
	testenv.Eventually(t, "four rows are dead with their reason", func() bool {
		w.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6)") // lookups that were too slow
		return w.count("cache_outbox_dead WHERE reason = 'too_many_keys' AND error LIKE '%lookups find more than 100000 rows or 4194304 bytes%'") == 4
	})
	testenv.Eventually(t, "the others are settled", func() bool {
		w.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6)")
		return w.count("cache_outbox") == 0 && w.count("cache_outbox_delayed") == 0
	})
	if left := w.left(); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
	if dead := w.count("cache_outbox_dead"); dead != 4 {
		t.Errorf("%d dead letters", dead)
	}
}
