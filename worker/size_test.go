package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// onOwnMySQL replaces the MySQL of the world with a server that has other options.
func (w *world) onOwnMySQL(args ...string) {
	w.t.Helper()
	own := testenv.OwnDatabase(w.t, args...)
	w.dsn, w.db = own.DSN, own.DB
	schematest.Up(w.t, w.db)
}

const noteMap = `
version: 1
publish: {channel: "cache:invalidate"}
limits: {keys_per_row: 50000}
entities:
  note: {params: [text, n], keys: ["shop:{text}:{id}:{n}"]}
`

// notes returns rows with many keys that do not compress, to make the packet of the journal large.
func notes(n, keys int) []outbox.Invalidation {
	invs := make([]outbox.Invalidation, n)
	for i := range invs {
		list := make([]string, keys)
		for k := range list {
			list[k] = fmt.Sprintf("%x", uint64(i*keys+k+1)*0x9e3779b97f4a7c15)
		}
		invs[i] = outbox.Invalidation{Entity: "note", ID: fmt.Sprint(i + 1), Params: map[string]any{"text": "t", "n": list}}
	}
	return invs
}

// Sentence 12: a batch whose journal entry exceeds max_allowed_packet is cut until it fits, and a
// row that is too large alone is dead-lettered with a reason. Other rows make progress.
func TestBatchLargerThanAPacket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noteMap)
	w.onOwnMySQL("--max-allowed-packet=16384")
	for i, inv := range notes(30, 150) { // one by one: the server takes no larger packet
		if i == 15 { // among them one that is too large alone
			w.exec("INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('note', 'large', ?)", largeParams())
		}
		w.enqueue(inv)
	}
	w.enqueue(notes(10, 1)...)
	r := w.worker(worker.Config{BatchRows: 100})
	r.start(t)
	testenv.Eventually(t, "nothing waits", func() bool { return w.count("cache_outbox") == 0 })
	if n := len(w.journalled()); n != 40 {
		t.Errorf("%d rows were settled", n)
	}
	checkDead(t, w, map[string][2]string{"large": {"too_many_keys",
		"its keys were unlinked, but its entry in the journal or its sweeps are larger than max_allowed_packet; raise that, then retry"}})
	if n := w.count("cache_outbox_journal"); n < 4 {
		t.Errorf("30 large rows in %d batches", n)
	}
}

// largeParams fit a packet, and make four thousand keys whose journal entry does not.
func largeParams() string {
	texts, numbers := make([]string, 8), make([]string, 500)
	for i := range texts {
		texts[i] = fmt.Sprintf("\"%x\"", uint64(i+1)*0xc2b2ae3d27d4eb4f)
	}
	for i := range numbers {
		numbers[i] = fmt.Sprintf("\"%x\"", uint64(i+1)*0x9e3779b97f4a7c15)
	}
	return `{"text":[` + strings.Join(texts, ",") + `],"n":[` + strings.Join(numbers, ",") + `]}`
}

// dawdling takes its time for each part.
type dawdling struct {
	worker.Redis
	pause time.Duration
	parts *int
}

func (d dawdling) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	*d.parts++
	time.Sleep(d.pause) // a Redis that is slow, not a test that waits
	return d.Redis.Unlink(ctx, targets)
}

// Sentence 12: a batch that is too large for its deadline settles what it has unlinked by half of
// it and releases the rest.
func TestBatchLargerThanItsDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noteMap)
	w.enqueue(notes(80, 250)...) // 20,000 keys, two parts
	parts := 0
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { return dawdling{real, 2050 * time.Millisecond, &parts} })
	stop := r.start(t)
	testenv.Eventually(t, "nothing waits", func() bool { return w.count("cache_outbox") == 0 })
	stop()
	if settled, dead := len(w.journalled()), w.count("cache_outbox_dead"); settled != 80 || dead != 0 {
		t.Errorf("%d rows were settled, %d are dead", settled, dead)
	}
	if n := w.count("cache_outbox_journal"); n < 2 || parts < 2 {
		t.Errorf("%d batches, %d parts: nothing was cut", n, parts)
	}
}
