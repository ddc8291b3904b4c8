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
	row  *store.WaitingRow // nil: none
	seen time.Time
}

// waits is for how long the first row of a status waits, at least.
func (f *firstRow) waits(row *store.WaitingRow) time.Duration {
	switch {
	case row == nil:
		*f = firstRow{}
		return 0
	case f.row == nil || row.ID != f.row.ID:
		*f = firstRow{row: row, seen: time.Now()}
	}
	return max(row.Age, time.Since(f.seen))
}

// readGauges sets the gauges from the tables, each table's by themselves.
func (w *engine) readGauges(ctx context.Context) {
	read := w.metrics.mysql.begin(callGauges)
	status, failed := w.store.StatusByTable(ctx)
	if failed[hotTable] == nil {
		status.OldestAge = max(status.OldestAge, w.first.waits(status.First))
	}
	read()
	if ctx.Err() != nil {
		return
	}
	w.metrics.observe(status, failed)
	w.unread.note(failed, w.health.inOutage())
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
