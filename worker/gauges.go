package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// A firstRow is the first row of cache_outbox, as this process saw it. Its created_at may be ahead
// of the database clock, or the clock may have been set back: the time since the process first saw
// the row is a lower bound of its wait.
type firstRow struct {
	row  *store.WaitingRow // nil: none
	seen time.Time
}

// waits returns for how long the first row of a status waits, at least.
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

// A gaugeReader sets the gauges about tables. Not safe for concurrent use.
type gaugeReader struct {
	status func(context.Context) (store.Status, map[string]error) // by table
	// as the last reading found it
	first    firstRow
	seen     func(waiting int, oldest time.Duration)
	unread   *unreadTables
	inOutage func() bool
	metrics  *metrics
}

// read sets the gauges from the tables, each table's by themselves.
func (g *gaugeReader) read(ctx context.Context) {
	read := g.metrics.mysql.begin(callGauges)
	status, failed := g.status(ctx)
	if failed[hotTable] == nil {
		status.OldestAge = max(status.OldestAge, g.first.waits(status.First))
		g.seen(min(status.Waiting, store.MaxExactCount), status.OldestAge)
	}
	read()
	if ctx.Err() != nil {
		return
	}
	g.metrics.observe(status, failed)
	g.unread.note(failed, g.inOutage())
}

// unreadTables tells in the log, once for each change, which tables the gauges cannot be read from.
// Not safe for concurrent use: cron runs one reading at a time.
type unreadTables struct {
	log    *slog.Logger
	failed map[string]bool // by the last reading
	told   map[string]bool
}

func newUnreadTables(log *slog.Logger) *unreadTables {
	return &unreadTables{log: log, failed: map[string]bool{}, told: map[string]bool{}}
}

// note records the outcome of a reading. A table is logged when it fails twice in a row, since a
// reading may notice an outage before the loop does, which then logs it.
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
