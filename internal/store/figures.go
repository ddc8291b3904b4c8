package store

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/session"
)

// MaxWaiting is how many rows each of cache_outbox and cache_outbox_delayed are looked at for rows
// that are late.
const MaxWaiting = 10_000

// Figures are the sums of all workers.
type Figures struct {
	Windows []Window // an hour, a day and 30 days
	Waiting Waiting
}

// A Window has the sums of the last minutes of the database's clock, the current one included.
type Window struct {
	For time.Duration
	Sums
	waiting Waiting
}

// Waiting are the rows that are not settled and are late already, by their age since the insert.
// They are in no Sums. Scheduled rows and repeats do not count.
type Waiting struct {
	Over100ms uint64 `db:"over_100ms"`
	Over1s    uint64 `db:"over_1s"`
	Over10s   uint64 `db:"over_10s"`
	Looked    int    `db:"looked"`
	More      bool   // there are more than MaxWaiting rows: the counts are at least these
}

// Contract for all: no lock (consistent reads); the range of the primary key that is not expired,
// or MaxWaiting+1 rows of one index.
var (
	sumsSQL    = "SELECT " + sums + " FROM cache_outbox_minutes WHERE minute > UNIX_TIMESTAMP() DIV 60 - ?"
	waitingSQL = fmt.Sprintf(lateSQL, "SELECT created_at, 1 AS counts FROM cache_outbox FORCE INDEX (PRIMARY) ORDER BY id")
	delayedSQL = fmt.Sprintf(lateSQL, "SELECT created_at, first_id <> 0 AND repeated = 0 AS counts FROM cache_outbox_delayed FORCE INDEX (due) ORDER BY due_at")
)

const lateSQL = `SELECT COUNT(*) AS looked, COALESCE(SUM(counts AND created_at < UTC_TIMESTAMP(6) - INTERVAL 100000 MICROSECOND), 0) AS over_100ms,
COALESCE(SUM(counts AND created_at < UTC_TIMESTAMP(6) - INTERVAL 1 SECOND), 0) AS over_1s,
COALESCE(SUM(counts AND created_at < UTC_TIMESTAMP(6) - INTERVAL 10 SECOND), 0) AS over_10s FROM (%s LIMIT ?) AS looked_at`

// ReadFigures reads the figures. Its account needs SELECT on cache_outbox_minutes, cache_outbox and
// cache_outbox_delayed.
func ReadFigures(ctx context.Context, db *session.Sessions) (f Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.Config.StatementTimeout)
	defer cancel()
	for _, query := range []string{waitingSQL, delayedSQL} {
		var w Waiting
		if err := db.Side.GetContext(ctx, &w, query, MaxWaiting+1); err != nil {
			return f, fmt.Errorf("count rows that are late: %w", err)
		}
		f.Waiting = Waiting{
			Over100ms: f.Waiting.Over100ms + w.Over100ms, Over1s: f.Waiting.Over1s + w.Over1s, Over10s: f.Waiting.Over10s + w.Over10s,
			Looked: f.Waiting.Looked + w.Looked, More: f.Waiting.More || w.Looked > MaxWaiting,
		}
	}
	for _, minutes := range []int{hour, day, month} {
		w := Window{For: time.Duration(minutes) * time.Minute, waiting: f.Waiting}
		if err := db.Side.GetContext(ctx, &w.Sums, sumsSQL, minutes); err != nil {
			return f, fmt.Errorf("add up minutes: %w", err)
		}
		f.Windows = append(f.Windows, w)
	}
	return f, nil
}
