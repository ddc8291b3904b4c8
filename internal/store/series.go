package store

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/session"
)

// A Point has the sums of all workers for some minutes from At on.
type Point struct {
	At          time.Time // UTC, the database's clock
	Rows        uint64    `db:"rows_settled"` // with a key or tag
	Within100ms uint64    `db:"within_100ms"`
	Within1s    uint64    `db:"within_1s"`
	Within10s   uint64    `db:"within_10s"`
	Dead        uint64    `db:"dead"`

	Looked  bool // how many rows waited is known; otherwise the next two are 0
	Waiting uint64
	Oldest  time.Duration // the longest that a row had waited

	Entities Entities
}

// Contract for both: no lock (a consistent read); the range of the primary key of the last minutes,
// with a row per minute and worker.
const (
	seriesSQL = `SELECT (minute DIV ?) * ? AS minute, SUM(rows_settled) AS rows_settled, SUM(within_100ms) AS within_100ms,
SUM(within_1s) AS within_1s, SUM(within_10s) AS within_10s, SUM(dead) AS dead, MAX(waiting) AS waiting, MAX(oldest_ms) AS oldest_ms
FROM cache_outbox_minutes WHERE minute > UNIX_TIMESTAMP() DIV 60 - ? AND worker <> '' GROUP BY 1 ORDER BY 1`
	entitiesSQL = `SELECT (minute DIV ?) * ? AS minute, entities FROM cache_outbox_minutes
WHERE minute > UNIX_TIMESTAMP() DIV 60 - ? AND worker <> '' AND entities IS NOT NULL`
)

// Series returns n points of so many minutes each, the oldest first and the current one last. Their
// total is at most 25 hours. Minutes without a row count nothing.
func Series(ctx context.Context, db *session.Sessions, n, each int) ([]Point, error) {
	ctx, cancel := context.WithTimeout(ctx, db.Config.StatementTimeout)
	defer cancel()
	var now int64
	if err := db.Side.GetContext(ctx, &now, "SELECT UNIX_TIMESTAMP() DIV 60"); err != nil {
		return nil, fmt.Errorf("read minutes: %w", err)
	}
	first := now/int64(each) - int64(n) + 1
	points := make([]Point, n)
	for i := range points {
		points[i] = Point{At: time.Unix((first+int64(i))*int64(each)*60, 0).UTC(), Entities: Entities{}}
	}
	// of returns the point of a minute. A minute outside of the series has one that is not used.
	of := func(minute int64) *Point {
		if i := minute/int64(each) - first; i >= 0 && i < int64(n) {
			return &points[i]
		}
		return &Point{Entities: Entities{}}
	}
	var sums []struct {
		Minute int64 `db:"minute"`
		Point
		Waiting  *uint64 `db:"waiting"`
		OldestMS *int64  `db:"oldest_ms"`
	}
	if err := db.Side.SelectContext(ctx, &sums, seriesSQL, each, each, n*each); err != nil {
		return nil, fmt.Errorf("read minutes: %w", err)
	}
	for i := range sums {
		from, to := &sums[i], of(sums[i].Minute)
		from.At, from.Entities = to.At, to.Entities
		if *to = from.Point; from.Waiting != nil && from.OldestMS != nil {
			to.Looked, to.Waiting, to.Oldest = true, *from.Waiting, time.Duration(*from.OldestMS)*time.Millisecond
		}
	}
	var texts []struct {
		Minute   int64  `db:"minute"`
		Entities string `db:"entities"`
	}
	if err := db.Side.SelectContext(ctx, &texts, entitiesSQL, each, each, n*each); err != nil {
		return nil, fmt.Errorf("read minutes by entity: %w", err)
	}
	for _, t := range texts {
		if err := of(t.Minute).Entities.parse(t.Entities); err != nil {
			return nil, fmt.Errorf("read minutes by entity: %w", err)
		}
	}
	return points, nil
}
