package minutes

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/session"
)

// A Point has the sums of all workers for some minutes from At on.
type Point struct {
	At          time.Time // UTC, the database's clock
	Rows        uint64    // with a key or tag
	Within100ms uint64
	Within1s    uint64
	Within10s   uint64
	Dead        uint64
}

// Contract: no lock (a consistent read); the range of the primary key of the last minutes, with a
// row per minute and worker.
const seriesSQL = `SELECT (minute DIV ?) * ? AS minute, SUM(rows_settled) AS settled, SUM(within_100ms) AS within_100ms,
SUM(within_1s) AS within_1s, SUM(within_10s) AS within_10s, SUM(dead) AS dead
FROM cache_outbox_minutes WHERE minute > UNIX_TIMESTAMP() DIV 60 - ? AND worker <> '' GROUP BY 1 ORDER BY 1`

// Series returns n points of so many minutes each, the oldest first and the current one last. Their
// total is at most 25 hours. Minutes without a row count nothing.
func Series(ctx context.Context, db *session.Sessions, n, each int) ([]Point, error) {
	ctx, cancel := context.WithTimeout(ctx, db.Config.StatementTimeout)
	defer cancel()
	var now int64
	if err := db.Side.GetContext(ctx, &now, "SELECT UNIX_TIMESTAMP() DIV 60"); err != nil {
		return nil, fmt.Errorf("read minutes: %w", err)
	}
	rows, err := db.Side.QueryContext(ctx, seriesSQL, each, each, n*each)
	if err != nil {
		return nil, fmt.Errorf("read minutes: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	first := now/int64(each) - int64(n) + 1
	points := make([]Point, n)
	for i := range points {
		points[i].At = time.Unix((first+int64(i))*int64(each)*60, 0).UTC()
	}
	for rows.Next() {
		var minute int64
		var p Point
		if err := rows.Scan(&minute, &p.Rows, &p.Within100ms, &p.Within1s, &p.Within10s, &p.Dead); err != nil {
			return nil, fmt.Errorf("read minutes: %w", err)
		}
		if i := minute/int64(each) - first; i >= 0 && i < int64(n) {
			p.At = points[i].At
			points[i] = p
		}
	}
	return points, rows.Err()
}
