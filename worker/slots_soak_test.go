//go:build soak

package worker_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/worker"
)

// ownerOf returns the number of the master that a slot belongs to, by what that says itself.
func ownerOf(t *testing.T, c *testenv.Cluster, slot int) int {
	t.Helper()
	owner := -1
	testenv.Eventually(t, "a master that has the slot", func() bool {
		for i, id := range c.IDs {
			if c.OwnerAt(t, i, slot) == id {
				owner = i
			}
		}
		return owner >= 0
	})
	return owner
}

// Slots move under load, including those of the beacons, to another master and back. Redis has lost
// nothing, so no worker reports a loss, heals or withholds heartbeats: neither workers that ran
// before, nor one that starts later, nor for a worker that stopped before.
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	c := testenv.OwnCluster(t, 3, false)
	slotsMove(t, c, func(slot, from, to int) { c.Migrate(t, slot, from, to, true) })
	if c.MovesAtomically(t) {
		c := testenv.OwnCluster(t, 3, false)
		slotsMove(t, c, func(slot, from, to int) { c.Move(t, slot, from, to) })
	}
}

func slotsMove(t *testing.T, c *testenv.Cluster, move func(slot, from, to int)) {
	w := newWorld(t, plainMap)
	w.url = c.URL()
	// a master without data has lost nothing
	if !setAll(t.Context(), c.Client, texts(100, "other:%d")) {
		t.Fatal("keys cannot be set")
	}
	w.enqueue(things(20)...)
	w.worker(worker.Config{}).drain(t) // an epoch that no worker writes any longer
	workers := []*running{w.worker(worker.Config{}), w.worker(worker.Config{})}
	for _, r := range workers {
		r.start(t)
	}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			id := fmt.Sprintf("{%d}%d", i%12, i) // in the slots that move
			_ = c.Client.Set(ctx, "shop:thing:"+id, "old", 0).Err()
			w.enqueue(outbox.Invalidation{Entity: "thing", ID: id})
		}
	})
	well := func(compares float64, all ...*running) {
		t.Helper()
		compared, beats := make([]float64, len(all)), make([]float64, len(all))
		count := func(i int) (float64, float64) {
			return metric(t, all[i], `unstale_redis_call_seconds_count{kind="compare"}`), metric(t, all[i], "unstale_heartbeats_total")
		}
		for i := range all {
			compared[i], beats[i] = count(i)
		}
		for i, r := range all {
			testenv.Eventually(t, "comparisons and heartbeats", func() bool {
				c, b := count(i)
				return c >= compared[i]+compares && b >= beats[i]+2
			})
			for _, bad := range []string{"redis lost unlinks", "redis went back in time", "heartbeats are withheld", "part of redis is away", "outage"} {
				if strings.Contains(r.log.String(), bad) {
					t.Errorf("the log says %q", bad)
				}
			}
			if n := metric(t, r, "unstale_heals_total"); n != 0 {
				t.Errorf("%v heals", n)
			}
		}
	}
	well(1, workers...)
	for _, to := range []int{0, 1} { // the least numbers name the beacons of all masters
		for n := range 12 {
			slot := int(protocol.Slot(strconv.Itoa(n)))
			if from := ownerOf(t, c, slot); from != to {
				move(slot, from, to)
			}
		}
		fresh := w.worker(worker.Config{}) // before the others can have compared
		end := fresh.start(t)
		well(1, fresh)
		end()
		well(2, workers...) // the first may have begun before the last move
	}
	stop()
	group.Wait()
}
