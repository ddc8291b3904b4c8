package docs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

const anHourAgo = "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR"

func (d *drill) exec(statements ...string) {
	d.t.Helper()
	run(d.t, d.db, statements...)
}

// must fails the test if bringing a cause about fails.
func (d *drill) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *drill) pause() (cure func()) {
	d.t.Helper()
	d.exec("INSERT INTO cache_outbox_control (name, who, reason, began_at) VALUES ('pause', 'a drill', '', UTC_TIMESTAMP(6))")
	return func() { d.exec("DELETE FROM cache_outbox_control") }
}

func (d *drill) changeOneMap() (cure func()) {
	d.write(d.otherMap, drillMap+"  another: {keys: [\"zahraah:another:{id}\"]}\n")
	return func() { d.write(d.otherMap, drillMap) }
}

// backlog creates a backlog: the worker processes one row at a time, and Redis is slow.
func (d *drill) backlog() (cure func()) {
	d.t.Helper()
	d.must(d.links[1].Slow(100))
	const rows = 150 // half a minute of work
	run(d.t, d.overloaded, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '1')"+strings.Repeat(", ('product', '1')", rows-1))
	return func() {
		d.links[1].Calm(d.t.Context())
		run(d.t, d.overloaded, "DELETE FROM cache_outbox")
	}
}

// holdRows inserts rows and locks them before a worker does.
func (d *drill) holdRows() (cure func()) {
	d.t.Helper()
	var holders []*sql.Tx
	for table, column := range map[string]string{"cache_outbox": "created_at", "cache_outbox_delayed": "due_at"} {
		testenv.Eventually(d.t, "a row to hold", func() bool {
			inserted, err := d.db.ExecContext(d.t.Context(), "INSERT INTO "+table+" (entity, entity_id, "+column+") VALUES ('product', 'held', "+anHourAgo+")")
			d.must(err)
			id, err := inserted.LastInsertId()
			d.must(err)
			tx, err := d.db.BeginTx(d.t.Context(), nil)
			d.must(err)
			err = tx.QueryRow("SELECT id FROM "+table+" WHERE id = ? FOR UPDATE SKIP LOCKED", id).Scan(&id)
			if errors.Is(err, sql.ErrNoRows) {
				d.must(tx.Rollback())
				return false
			}
			d.must(err)
			holders = append(holders, tx)
			return true
		})
	}
	return func() {
		for _, tx := range holders {
			d.must(tx.Rollback())
		}
	}
}

func (d *drill) useUpIDs() (cure func()) {
	d.t.Helper()
	run(d.t, d.overloaded, "SET insert_id = "+lastID, inserts["cache_outbox_delayed"])
	return func() {
		run(d.t, d.overloaded, "DELETE FROM cache_outbox_delayed", "ALTER TABLE cache_outbox_delayed AUTO_INCREMENT = 1000")
	}
}

// shareID publishes a copy of the database, which no worker of the drill serves. Its time is in the
// future, so it stays until it is removed.
func (d *drill) shareID() (cure func()) {
	d.t.Helper()
	var source string
	d.must(d.db.QueryRowContext(d.t.Context(), "SELECT id FROM cache_outbox_source").Scan(&source))
	record := fmt.Sprintf(`%d {"source": %q, "server": "s", "schema": "another"}`, time.Now().Add(time.Hour).UnixMicro(), source)
	d.must(d.keys.HSet(d.t.Context(), "unstale:sources", "another", record).Err())
	return func() { d.must(d.keys.HDel(d.t.Context(), "unstale:sources", "another").Err()) }
}

// hangCommits makes COMMITs of the third worker's server hang.
func (d *drill) hangCommits() (cure func()) {
	d.t.Helper()
	return testenv.HoldCommits(d.t, d.hangable)
}

func (d *drill) unknownEntity() (cure func()) {
	d.t.Helper()
	d.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('nobody', '1')")
	return func() { d.exec("DELETE FROM cache_outbox_dead") }
}

func (d *drill) foreignKeys() (cure func()) {
	stop := d.steadily(200*time.Millisecond, func(ctx context.Context, n int) {
		_, _ = d.db.ExecContext(ctx, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('foreign', ?)", n)
	})
	return func() {
		stop()
		d.must(d.keys.Do(d.t.Context(), "acl", "setuser", "unstale", "~elsewhere:*").Err())
	}
}

// storeOldEntries stores an entry again and again whose lease time is before each UNLINK. It stores it
// more often than the worker unlinks it, so that a check finds it.
func (d *drill) storeOldEntries() (cure func()) {
	stopRows := d.steadily(200*time.Millisecond, func(ctx context.Context, _ int) {
		_, _ = d.db.ExecContext(ctx, "INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', 'old')")
	})
	stopEntries := d.steadily(10*time.Millisecond, func(ctx context.Context, _ int) {
		text := fmt.Sprintf(`{"e":%d,"b":%d,"v":1}`, time.Now().Add(time.Hour).UnixMilli(), time.Now().Add(-time.Minute).UnixMicro())
		_ = d.keys.Set(ctx, "zahraah:product:old", text, time.Minute).Err()
	})
	return func() { stopRows(); stopEntries() }
}

func (d *drill) notASet() (cure func()) {
	d.t.Helper()
	d.must(d.keys.Set(d.t.Context(), "tag:text", "no set", 0).Err())
	d.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('list', 'text')")
	return func() {
		d.must(d.keys.Del(d.t.Context(), "tag:text").Err())
		d.exec("UPDATE cache_outbox_sweeps SET not_before = UTC_TIMESTAMP(6)")
		// a refused sweep would hide that sweeps are stuck
		testenv.Eventually(d.t, "no sweep is refused", func() bool {
			return value(d.t, d.db, "SELECT COUNT(*) FROM cache_outbox_sweeps WHERE kind = 'set' AND name = 'tag:text'") == "0"
		})
	}
}

func (d *drill) breakMap() (cure func()) {
	d.write(d.mapFile, "nonsense")
	return func() { d.write(d.mapFile, drillMap) }
}

// changeReads makes all workers load a map that the reader's code was not made from.
func (d *drill) changeReads() (cure func()) {
	write := func(text string) { d.write(d.mapFile, text); d.write(d.otherMap, text) }
	write(strings.Replace(drillMap, "ttl: 30m", "ttl: 10m", 1))
	return func() { write(drillMap) }
}

func (d *drill) readNewKeys() (cure func()) {
	return d.steadily(10*time.Millisecond, func(ctx context.Context, n int) { d.fetch(ctx, fmt.Sprint("new:", n), nil) })
}

func (d *drill) failLoaders() (cure func()) {
	return d.steadily(20*time.Millisecond, func(ctx context.Context, n int) { d.fetch(ctx, fmt.Sprint("failing:", n), errors.New("no database")) })
}

// holdSweepLock acts as a frozen worker that holds the sweep lock. It makes all waiting sweeps an
// hour old.
func (d *drill) holdSweepLock() (cure func()) {
	d.t.Helper()
	tx, err := d.db.BeginTx(d.t.Context(), nil)
	d.must(err)
	var name string
	d.must(tx.QueryRow("SELECT name FROM cache_outbox_sweeper WHERE name = 'lead' FOR UPDATE").Scan(&name))
	d.exec("INSERT INTO cache_outbox_sweeps (kind, name) VALUES ('pattern', 'zahraah:list:7:*')",
		"UPDATE cache_outbox_sweeps SET requested_at = "+anHourAgo)
	return func() { d.must(tx.Rollback()) }
}

func (d *drill) hideTable() (cure func()) {
	d.t.Helper()
	d.exec("RENAME TABLE cache_outbox_dead TO hidden")
	return func() { d.exec("RENAME TABLE hidden TO cache_outbox_dead") }
}

func (d *drill) killMaster() (cure func()) {
	d.t.Helper()
	d.must(d.cluster.Nodes[0].Kill())
	return func() { d.must(d.cluster.Nodes[0].Restart(d.t.Context())) }
}

func (d *drill) forbidScan() (cure func()) {
	d.t.Helper()
	d.must(d.keys.Do(d.t.Context(), "acl", "setuser", "unstale", "-scan").Err())
	return func() { d.must(d.keys.Do(d.t.Context(), "acl", "setuser", "unstale", "+scan").Err()) }
}

// flap closes the links of two workers until the workers notice, and opens them until the workers
// are ready, repeatedly.
func (d *drill) flap() (cure func()) {
	var stops []func()
	for i, link := range d.links {
		closed := false
		stops = append(stops, d.steadily(5*time.Millisecond, func(context.Context, int) {
			switch ready := d.ready[i]() == nil; {
			case ready && !closed:
				link.Close()
				closed = true
			case !ready && closed:
				closed = link.Open() != nil
			}
		}))
	}
	return func() {
		for i, stop := range stops {
			stop()
			_ = d.links[i].Open() // an error means that it is open
		}
	}
}

// killCache leaves a snapshot that is older than the keys that the worker has unlinked. It makes
// all waiting rows an hour old.
func (d *drill) killCache() (cure func()) {
	d.t.Helper()
	d.outdate()
	d.must(d.cache.Kill())
	d.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', 'waits')", "UPDATE cache_outbox SET created_at = "+anHourAgo)
	return func() {} // goBack is the cure
}

// outdate saves a snapshot, and waits until the worker has settled more rows.
func (d *drill) outdate() {
	d.t.Helper()
	d.must(d.keys.Save(d.t.Context()).Err())
	d.saved = value(d.t, d.db, "SELECT MAX(id) FROM cache_outbox_journal")
	testenv.Eventually(d.t, "ten more batches", func() bool {
		return value(d.t, d.db, "SELECT COUNT(*) >= 10 FROM cache_outbox_journal WHERE row_count > 0 AND id > "+d.saved) == "1"
	})
}

// goBack damages the last batch of the journal, withholds the batches before it that Redis has
// lost, and starts Redis.
func (d *drill) goBack() (cure func()) {
	d.t.Helper()
	// batches without rows may have no body
	last := value(d.t, d.db, "SELECT MAX(id) FROM cache_outbox_journal WHERE row_count > 0")
	d.exec("UPDATE cache_outbox_journal SET body = REVERSE(body) WHERE id = " + last)
	// READ COMMITTED does not lock the gap to the next row
	tx, err := d.db.BeginTx(d.t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	d.must(err)
	_, err = tx.Exec("UPDATE cache_outbox_journal SET worker = 'frozen' WHERE id > " + d.saved + " AND id < " + last)
	d.must(err)
	d.must(d.cache.Restart(d.t.Context()))
	return func() {
		d.must(tx.Rollback())
		d.exec("DELETE FROM cache_outbox_journal WHERE epoch = 'damaged'")
	}
}

func (d *drill) stopWorkers() (cure func()) {
	d.t.Helper()
	d.outdate()
	for _, stop := range d.stops {
		stop()
	}
	return func() {} // startWorker is the cure
}

// startWorker starts a worker that was never scraped, and that heals before its first scrape.
func (d *drill) startWorker() (cure func()) {
	d.t.Helper()
	d.must(d.cache.Kill())
	d.must(d.cache.Restart(d.t.Context()))
	d.carry(d.first, d.spare)
	return func() {}
}
