package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// newOwnWorld returns a world on a MySQL server that no other test uses, for a test that reads the
// server's counters.
func newOwnWorld(t testing.TB, mapText string) (w *world, flavor servers.Kind) {
	t.Helper()
	w = newWorld(t, mapText)
	own := testenv.OwnDatabase(t)
	w.dsn, w.db = own.DSN, own.DB
	schematest.Up(t, w.db)
	return w, own.Flavor
}

func (w *world) deadlocks(flavor servers.Kind) (n int) {
	w.t.Helper()
	query := "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
	if flavor == servers.KindMariaDB {
		query = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_DEADLOCKS'"
	}
	if err := w.db.QueryRow(query).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// Sentence 5: four workers share 50,000 rows. Every key is deleted, no row is settled twice, and
// the deadlock counter of the server does not change.
func TestFourWorkersShare(t *testing.T) {
	t.Parallel()
	w, flavor := newOwnWorld(t, "")
	const workers, rows = 4, 50_000
	for first := 0; first < rows; first += 10_000 {
		invs := make([]outbox.Invalidation, 10_000)
		keys := make([]string, len(invs))
		for i := range invs {
			id := fmt.Sprint(first + i)
			invs[i] = outbox.Invalidation{Entity: "coupon", ID: id}
			keys[i] = shop + "coupon:" + id
		}
		w.set(keys...)
		w.enqueue(invs...)
	}
	w.set("neighbour")
	before := w.deadlocks(flavor)
	var group sync.WaitGroup
	for range workers {
		r := w.worker(worker.Config{BatchRows: 500})
		group.Go(func() {
			if _, err := r.Drain(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := w.count("cache_outbox"); n != 0 {
		t.Errorf("%d rows left", n)
	}
	if left := w.left(); len(left) != 1 || left[0] != "neighbour" {
		t.Errorf("%d keys left, such as %s", len(left), left[0])
	}
	if after := w.deadlocks(flavor); after != before {
		t.Errorf("the deadlock counter went from %d to %d", before, after)
	}
	settled := w.journalled()
	if len(settled) != rows {
		t.Errorf("%d of %d rows in the journal", len(settled), rows)
	}
	for id, n := range settled {
		if n != 1 {
			t.Fatalf("row %d was settled %d times", id, n)
		}
	}
}

// journalled counts how often each row of cache_outbox was settled.
func (w *world) journalled() map[uint64]int {
	w.t.Helper()
	rows, err := w.db.Query("SELECT body FROM cache_outbox_journal")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	settled := map[uint64]int{}
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			w.t.Fatal(err)
		}
		entries, err := store.DecodeEntries(body)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range entries {
			settled[e.ID]++
		}
	}
	return settled
}
