package worker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const heavyMap = `
version: 1
publish: {channel: "cache:invalidate"}
limits: {params: 1MiB}
params:
  v: {}
  found: {lookup: {by: [id], sql: "SELECT i.n, CONCAT(i.n, '-', v.n) FROM numbers AS i, numbers AS v WHERE i.n IN (?)"}}
entities:
  light: {keys: ["shop:light:{id}"]}
  wide: {params: [v], keys: ["shop:wide:{v}"]}
  found: {params: [found], keys: ["shop:found:{found}"]}
  listed: {params: [v], patterns: ["shop:list:{v}:*"], sets: ["tag:{v}"]}
  again: {keys: ["shop:again:{id}"], repeat: [1h, 2h, 3h, 4h, 5h, 6h, 7h, 8h]}
`

// values are n of them, from a number on.
func values(from, n int) map[string]any {
	list := make([]int, n)
	for i := range list {
		list[i] = from + i
	}
	return map[string]any{"v": list}
}

func lightRows(n int) (rows []outbox.Invalidation) {
	for i := range n {
		rows = append(rows, outbox.Invalidation{Entity: "light", ID: fmt.Sprint(i + 1)})
	}
	return rows
}

// settledOrder lists the entities of the rows in the order of the journal, each once where it
// repeats, and counts the names.
func (w *world) settledOrder() (order []string, names int) {
	w.t.Helper()
	rows, err := w.db.Query("SELECT body FROM cache_outbox_journal ORDER BY id")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var body sql.RawBytes
		if err := rows.Scan(&body); err != nil {
			w.t.Fatal(err)
		}
		entries, err := store.DecodeEntries(body)
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range entries {
			if e := &entries[i]; !e.IsSweep() {
				order, names = append(order, e.Entity), names+e.Names()
			}
		}
	}
	return slices.Compact(order), names
}

// Sentence 12: light rows do not wait behind heavy ones of any kind, in cache_outbox and among
// delayed rows. All are settled.
func TestHeavyRowsAreCarriedApart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entity string
		params func(row int) map[string]any
		names  int
	}{
		{"wide", func(row int) map[string]any { return values(1000*row, 600) }, 600},
		{"listed", func(row int) map[string]any { return values(1000*row, 300) }, 600},
		{"found", func(int) map[string]any { return nil }, 600},
		{"again", func(int) map[string]any { return map[string]any{"v": strings.Repeat("x", 9000)} }, 1},
	} {
		for _, table := range []string{"cache_outbox", "cache_outbox_delayed"} {
			t.Run(c.entity+" in "+table, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, heavyMap)
				w.exec("CREATE TABLE numbers (n INT PRIMARY KEY)")
				w.exec("INSERT INTO numbers VALUES (0)" + strings.Join(texts(599, ", (%d)"), ""))
				for row := range 4 {
					w.enqueue(outbox.Invalidation{Entity: c.entity, ID: fmt.Sprint(row), Params: c.params(row)})
				}
				w.enqueue(lightRows(40)...)
				if table == "cache_outbox_delayed" {
					w.exec("INSERT INTO cache_outbox_delayed (entity, entity_id, params, first_id, due_at) SELECT entity, entity_id, params, id, UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE + INTERVAL id MICROSECOND FROM cache_outbox ORDER BY id")
					w.exec("DELETE FROM cache_outbox")
				}
				if _, err := w.worker(worker.Config{}).DrainRows(t.Context()); err != nil {
					t.Fatal(err)
				}
				order, names := w.settledOrder()
				if want := []string{"light", c.entity}; !slices.Equal(order, want) || names != 40+4*c.names {
					t.Errorf("settled %v with %d names, wanted %v with %d", order, names, want, 40+4*c.names)
				}
				if n := w.count("cache_outbox") + w.count("cache_outbox_delayed WHERE repeated = 0"); n != 0 {
					t.Errorf("%d rows are left", n)
				}
				for id, n := range w.journalled() {
					if n != 1 {
						t.Errorf("row %d was settled %d times", id, n)
					}
				}
			})
		}
	}
}

// Rows whose parameters are beyond the limit are dead letters, and light rows do not wait until
// they are copied there.
func TestRowsBeyondTheLimitAreCarriedApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heavyMap)
	for _, id := range []string{"a", "b", "c"} {
		w.exec("INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('wide', ?, CONCAT('{\"v\":\"', REPEAT('x', 2 << 20), '\"}'))", id)
	}
	w.enqueue(lightRows(5)...)
	r := w.worker(worker.Config{MaxAttempts: 100})
	done := r.drain(t)
	why := [2]string{"params_too_large", "limits.params is 1048576"}
	checkDead(t, w, map[string][2]string{"a": why, "b": why, "c": why})
	if done.Dead != 3 || done.Unlinked != 5 {
		t.Errorf("%+v", done)
	}
}

// A batch asks once for the sweeps that its rows have in common, also of heavy rows.
func TestHeavyRowsShareSweeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heavyMap)
	for row := range 5 {
		w.enqueue(outbox.Invalidation{Entity: "listed", ID: fmt.Sprint(row), Params: values(0, 3000)})
	}
	if _, err := w.worker(worker.Config{}).DrainRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.count("cache_outbox_sweeps"); n != 6000 {
		t.Errorf("%d sweeps were requested, wanted each of 6,000 once", n)
	}
	if n := w.count("cache_outbox_sweeps WHERE first_low = 1 AND first_high = 5"); n != 6000 {
		t.Errorf("%d sweeps name the rows that asked", n)
	}
}

// Sentence 12: a batch is cut by what its settlement would write.
func TestBatchIsCutByItsSweeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heavyMap)
	for row := range 60 {
		w.enqueue(outbox.Invalidation{Entity: "listed", ID: fmt.Sprint(row), Params: values(1000*row, 200)})
	}
	r, unlinked := w.worker(worker.Config{}), 0
	testenv.Eventually(t, "all rows are settled", func() bool {
		got, err := r.DrainRows(t.Context())
		if err != nil {
			t.Log(err) // a busy machine may be slow
		}
		unlinked += got.Unlinked
		return err == nil && w.count("cache_outbox") == 0
	})
	if n := w.count("cache_outbox_sweeps"); unlinked != 60 || n != 60*400 {
		t.Errorf("%d rows were settled, %d sweeps requested", unlinked, n)
	}
	if n := w.count("cache_outbox_journal WHERE row_count <= 25"); n != w.count("cache_outbox_journal") || n < 3 {
		t.Errorf("%d batches for 24,000 sweeps", n)
	}
}

// Two workers share heavy rows, and settle none twice.
func TestWorkersShareHeavyRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, heavyMap)
	for row := range 30 {
		w.enqueue(outbox.Invalidation{Entity: "wide", ID: fmt.Sprint(row), Params: values(10_000*row, 5000)})
	}
	w.enqueue(lightRows(30)...)
	ended := make(chan error, 2)
	for range 2 {
		r := w.worker(worker.Config{BatchRows: 10})
		go func() {
			_, err := r.DrainRows(t.Context())
			ended <- err
		}()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	// what the other one held when each ended
	if r := w.worker(worker.Config{}).drain(t); r.Claimed > 0 {
		t.Logf("%d rows were left", r.Claimed)
	}
	settled := w.journalled()
	for id, n := range settled {
		if n != 1 {
			t.Errorf("row %d was settled %d times", id, n)
		}
	}
	if len(settled) != 60 || w.count("cache_outbox") != 0 {
		t.Errorf("%d rows were settled", len(settled))
	}
}

// Rows whose lookup finds many values are answered a few at a time, even rows with two lookups.
func TestLookupsOfManyValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `
version: 1
params:
  n: {lookup: {by: [id], sql: "SELECT id, n FROM many WHERE id IN (?)"}}
  m: {lookup: {by: [id], sql: "SELECT id, n + 100000 FROM many WHERE id IN (?)"}}
entities:
  light: {params: [n], keys: ["shop:light:{id}:{n}"]}
  found: {params: [n, m], keys: ["shop:found:{id}:{n}", "shop:found:{id}:{m}"]}
`)
	w.exec("CREATE TABLE many (id INT, n INT, KEY id (id))")
	w.exec("CREATE TABLE digits (d INT)")
	w.exec("INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)")
	w.exec("INSERT INTO many SELECT 1000 + i.d, a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS n FROM digits i, digits a, digits b, digits c, digits e WHERE e.d < 3 AND c.d < 8")
	w.exec("INSERT INTO many SELECT 1 + a.d, 7 FROM digits a")
	for row := range 10 {
		w.enqueue(outbox.Invalidation{Entity: "found", ID: fmt.Sprint(1000 + row)})
	}
	w.enqueue(lightRows(10)...)
	r := w.worker(worker.Config{MaxAttempts: 100})
	done := worker.Result{}
	// on a busy machine, lookups may be too slow, which delays their rows or ends the batch
	for done.Unlinked < 20 && t.Context().Err() == nil {
		w.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6)")
		more, err := r.DrainRows(t.Context())
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		done.Unlinked, done.Keys = done.Unlinked+more.Unlinked, done.Keys+more.Keys
	}
	if done.Keys != 10+10*4800 {
		t.Errorf("%+v", done)
	}
}

// Sentence 17: heavy rows that wait for their turn, or take longer than the claim timeout, are
// neither held by another session nor behind, to their own worker and to others.
func TestSlowHeavyRowsAreNotHeld(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		t.Run(fmt.Sprint(n, " workers"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, heavyMap)
			for row := range 40 {
				w.enqueue(outbox.Invalidation{Entity: "wide", ID: fmt.Sprint(row), Params: values(1000*row, 1000)})
			}
			var all []*running
			for range n {
				parts := 0
				r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { return dawdling{real, 7 * time.Second, &parts} })
				r.start(t)
				all = append(all, r)
			}
			testenv.Eventually(t, "nothing waits", func() bool { return w.count("cache_outbox") == 0 })
			for _, r := range all {
				if n := r.log.count("rows make no progress"); n != 0 {
					t.Errorf("%d reports: %s", n, r.log)
				}
			}
			if n := len(w.journalled()); n != 40 {
				t.Errorf("%d rows were settled", n)
			}
		})
	}
}
