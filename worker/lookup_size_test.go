package worker_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const pairMap = `
version: 1
publish: {channel: "cache:invalidate"}
params:
  found: {lookup: {by: [text, n], sql: "SELECT text, n, value FROM pairs WHERE (text, n) IN (?)"}}
entities:
  pair:  {params: [text, n, found], keys: ["shop:{found}"]}
  plain: {keys: ["shop:plain:{id}"]}
`

// pair returns a row of 32 KiB of text and a list of numbers. Its lookup gets all combinations.
func pair(id string, n int) outbox.Invalidation {
	list := make([]int, n)
	for i := range list {
		list[i] = 1000 + i
	}
	return outbox.Invalidation{Entity: "pair", ID: id, Params: map[string]any{"text": strings.Repeat("x", 32<<10), "n": list}}
}

// Sentence 6 and 12: a row with too large questions is dead-lettered before they are formed, and
// rows with large questions are processed in small batches. Not parallel, since allocations are
// counted for the whole process.
func TestQuestionsAreBoundedInBytes(t *testing.T) {
	const large, hostile = 6, 20
	w := newWorld(t, pairMap)
	w.exec("CREATE TABLE pairs (text VARCHAR(100) NOT NULL, n INT NOT NULL, value INT NOT NULL, KEY (n))")
	w.set("shop:plain:1")
	for i := range hostile {
		w.enqueue(pair(fmt.Sprint("hostile", i), 5500))
	}
	w.enqueue(outbox.Invalidation{Entity: "plain", ID: "1"})
	r := w.worker(worker.Config{})
	if bytes := allocated(func() { r.drain(t) }); bytes > 64<<20 {
		t.Errorf("%d hostile rows of 64 KiB: %d MiB were allocated", hostile, bytes>>20)
	}
	if left, dead := w.left(), w.count("cache_outbox_dead WHERE reason = 'too_many_keys' AND error LIKE '%the lookup of found%write shorter values%'"); len(left) != 0 || dead != hostile {
		t.Errorf("left %q, %d of %d are dead with their reason", left, dead, hostile)
	}
	for i := range large {
		w.enqueue(pair(fmt.Sprint("large", i), 70))
	}
	before := w.count("cache_outbox_journal")
	if bytes := allocated(func() { r.drain(t) }) / large; bytes > 60<<20 {
		t.Errorf("rows that ask with 2.2 MiB: %d MiB were allocated for each", bytes>>20)
	}
	if n := w.count("cache_outbox_journal") - before; n != large {
		t.Errorf("%d rows that ask with 2.2 MiB, of 4 together, went in %d batches", large, n)
	}
}

func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
