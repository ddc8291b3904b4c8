package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// A firstRow is the first row of cache_outbox, as this process saw it. A created_at may lie ahead of the database's clock, or
// the clock be set back: since when the row was seen tells how long it waits at least.
type firstRow struct {
	id   uint64 // 0: none
	seen time.Time
	held bool // the last reading found it held
}

// waits is for how long the first row of a status waits, at least.
func (f *firstRow) waits(row *store.WaitingRow) time.Duration {
	switch {
	case row == nil:
		*f = firstRow{}
		return 0
	case row.ID != f.id:
		*f = firstRow{id: row.ID, seen: time.Now()}
	}
	return max(row.Age, time.Since(f.seen))
}

// readGauges sets the gauges from the tables, each table's by themselves.
func (w *engine) readGauges(ctx context.Context) {
	read := w.metrics.mysql.begin(callGauges)
	status, failed := w.store.StatusByTable(ctx)
	if failed[hotTable] == nil {
		waits := w.first.waits(status.First)
		status.OldestAge = max(status.OldestAge, waits)
		if err := w.readHeld(ctx, waits); err != nil {
			failed[hotTable] = err
		}
	}
	read()
	if ctx.Err() != nil {
		return
	}
	w.metrics.observe(status, failed)
	w.unread.note(failed, w.health.inOutage())
}

// readHeld sets the gauge of a row that nobody can claim. Another worker may have the first row in hand, or take it at this
// moment: so it counts when two readings in a row find it held, and it is older than any batch.
func (w *engine) readHeld(ctx context.Context, waits time.Duration) (err error) {
	f, before := &w.first, w.first.held
	f.held = false
	if f.id != 0 && waits >= longestBatch {
		if f.held, err = w.store.Held(ctx, f.id); err != nil {
			return err
		}
	}
	w.metrics.held.Set(0)
	if f.held && before {
		w.metrics.held.Set(waits.Seconds())
	}
	return nil
}

// unreadTables tells in the log, once for each change, which tables the gauges cannot be read from. Not safe for
// concurrent use: cron runs one reading at a time.
type unreadTables struct {
	log    *slog.Logger
	failed map[string]bool // by the last reading
	told   map[string]bool
}

func newUnreadTables(log *slog.Logger) *unreadTables {
	return &unreadTables{log: log, failed: map[string]bool{}, told: map[string]bool{}}
}

// note takes the outcome of a reading. A table is told of when it fails for the second time in a row, since a reading
// may notice an outage before the loop does, which then tells of it.
func (u *unreadTables) note(failed map[string]error, outage bool) {
	for table, err := range failed {
		if u.failed[table] && !u.told[table] && !outage {
			u.log.Warn("gauges of a table cannot be read and are NaN; trying again", "table", table, "error", err)
			u.told[table] = true
		}
	}
	for table := range u.told {
		if failed[table] == nil {
			u.log.Info("gauges of a table are read again", "table", table)
			delete(u.told, table)
		}
	}
	clear(u.failed)
	for table := range failed {
		u.failed[table] = true
	}
}
