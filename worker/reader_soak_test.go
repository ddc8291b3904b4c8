//go:build soak

package worker_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

// Sentence 17: while a master of a Cluster is unavailable, rows with keys there wait, and no
// heartbeat is sent.
func TestReaderClosesWhileAShardIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	cluster := testenv.OwnCluster(t, 3, false, "--cluster-require-full-coverage", "no")
	w.url = cluster.URL()
	r := w.worker(worker.Config{})
	r.start(t)
	// A channel that the first master does not have.
	c := w.reader(time.Second, cluster.Client)
	c.open()
	away := 0
	if slot, err := cluster.Direct[0].ClusterKeySlot(t.Context(), w.channel).Result(); err != nil {
		t.Fatal(err)
	} else if int(slot) < cluster.First(1) {
		away = 1
	}
	if err := cluster.Nodes[away].Pause(); err != nil {
		t.Fatal(err)
	}
	c.closed("no heartbeat")
	testenv.Eventually(t, "the log", func() bool { return r.log.count("part of redis is away: rows with keys there wait") > 0 })
	sent := metric(t, r, "unstale_heartbeats_total")
	for i := range 3 { // rows with other keys are processed
		w.enqueue(things(30)...)
		testenv.Eventually(t, "batches", func() bool { return w.count("cache_outbox_journal") > i })
	}
	if n := metric(t, r, "unstale_heartbeats_total"); n != sent || c.c.Healthy() == nil {
		t.Errorf("%v heartbeats were sent; memory is closed for %v", n-sent, c.c.Healthy())
	}
	if err := cluster.Nodes[away].Resume(); err != nil {
		t.Fatal(err)
	}
	c.open()
}
