package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

// At a light load, commits that come after a batch are processed together. The idle interval
// exceeds the timeout of the test, so only the hint at the end makes another batch, unless the loop
// polls when it should wait.
func TestLightLoadIsGathered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	rows := things(6)
	w.enqueue(rows[0])
	r := w.worker(worker.Config{IdleInterval: time.Hour, WakeChannel: w.channel + ":wake"})
	r.start(t)
	testenv.Eventually(t, "the first batch is over", func() bool { return slices.Equal(w.batches(), []int{1}) })
	testenv.Eventually(t, "the worker listens", func() bool {
		return w.redis.PubSubNumSub(t.Context(), w.channel+":wake").Val()[w.channel+":wake"] == 1
	})
	for _, row := range rows[1:] { // a commit each
		w.enqueue(row)
	}
	if err := w.redis.Publish(t.Context(), w.channel+":wake", "").Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "all rows are settled", func() bool { return w.count("cache_outbox") == 0 })
	if got := w.batches(); !slices.Equal(got, []int{1, 5}) {
		t.Errorf("batches of %v rows", got)
	}
}

// batches returns how many rows each batch in the journal has.
func (w *world) batches() (counts []int) {
	w.t.Helper()
	rows, err := w.db.QueryContext(w.t.Context(), "SELECT row_count FROM cache_outbox_journal WHERE row_count > 0 ORDER BY id")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			w.t.Fatal(err)
		}
		counts = append(counts, n)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return counts
}
