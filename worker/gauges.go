package worker

import (
	"context"
	"log/slog"
)

// readGauges sets the gauges from the tables, each table's by themselves.
func (w *engine) readGauges(ctx context.Context) {
	status, failed := w.store.StatusByTable(ctx)
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
