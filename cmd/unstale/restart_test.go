package main

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// newOwnWorld returns a world whose MySQL can be killed too.
func newOwnWorld(t testing.TB) (w *world, killMySQL func()) {
	t.Helper()
	w = newWorld(t)
	own := testenv.OwnMySQL(t)
	admin, err := sql.Open("mysql", own.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE shop"); err != nil {
		t.Fatal(err)
	}
	if w.db, err = sql.Open("mysql", own.DSN("shop")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.db.Close() })
	schematest.Up(t, w.db)
	w.env["MYSQL_DSN"] = own.DSN("shop")
	return w, func() {
		t.Helper()
		if err := own.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := own.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// put writes one change as a shop does, its key first, and reports whether the commit is known to
// have succeeded.
func (w *world) put(id string) (committed bool) {
	ctx := w.t.Context()
	if w.redis.Set(ctx, "shop:thing:"+id, "old", time.Hour).Err() != nil {
		return false
	}
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return false
	}
	if err := outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "thing", ID: id, Trace: id}); err != nil {
		_ = tx.Rollback() // the server is unavailable
		return false
	}
	return tx.Commit() == nil
}

// Sentences 1 and 7: both servers and a worker are killed and started again during writes. Every
// change that committed is settled and its key is gone; the workers recover.
func TestServersAreKilledAtWork(t *testing.T) {
	t.Parallel()
	w, killMySQL := newOwnWorld(t)
	workers := []*running{w.start("--batch-rows", "20"), w.start("--batch-rows", "20")}
	stop := make(chan struct{})
	written := make(chan []string)
	go func() {
		var committed []string
		for n := 0; ; n++ {
			select {
			case <-stop:
				written <- committed
				return
			default:
			}
			if id := fmt.Sprint("c", n); w.put(id) {
				committed = append(committed, id)
			}
		}
	}()
	settles := func() {
		before := w.count("cache_outbox_journal")
		workers[1].until("a batch is settled", func() bool { return w.count("cache_outbox_journal") > before })
	}
	settles()
	for range 2 {
		killMySQL()
		settles()
		if err := w.server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := w.server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		settles()
	}
	if err := workers[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	settles()
	close(stop)
	committed := <-written
	workers[1].until("nothing waits", func() bool { return w.count("cache_outbox") == 0 })
	for _, id := range committed {
		if w.redis.Exists(t.Context(), "shop:thing:"+id).Val() != 0 {
			t.Errorf("the key of %s is still there", id)
		}
	}
	if n := w.count("cache_outbox_delayed") + w.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d rows were taken to be at fault", n)
	}
	traces := w.traces()
	for _, id := range committed {
		if !traces[id] {
			t.Errorf("%s is in no journal", id)
		}
	}
	t.Logf("%d transactions committed", len(committed))
}

// traces returns those of the journal's entries.
func (w *world) traces() map[string]bool {
	w.t.Helper()
	all := map[string]bool{}
	for _, e := range w.entries() {
		all[e.Trace] = true
	}
	return all
}
