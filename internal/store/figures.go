package store

import (
	"context"
	"fmt"
	"math"
	"strconv"
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

// An Estimate is a share of stale entries, as a sample of batches shows it.
type Estimate struct {
	Share float64 // estimated; not a number if nothing was found
	// Below is the upper bound of the share of batches with a stale entry, with 95% confidence. If
	// no stale entry was found, it is 3/Batches.
	Below float64
	// Batches is the effective size of the sample. Keys of one batch fail together, so a batch
	// counts once. If the weights differ, Batches is less than the number of batches.
	Batches float64
}

// StalePerEntry estimates how many of the entries that have a lease time are stale when their batch
// has been settled.
func (s *Sums) StalePerEntry() Estimate {
	return estimate(s.WStale, s.WWithEntry, s.WStaleBatches, s.WEntryBatches, s.WWEntryBatches)
}

// StalePerInvalidation estimates how many of the invalidated keys have a stale entry when their
// batch has been settled. An absent key is not stale.
func (s *Sums) StalePerInvalidation() Estimate {
	return estimate(s.WStale, s.WKnown, s.WStaleBatches, s.WSampled, s.WWSampled)
}

// estimate returns the estimate of stale among all, from weighted sums of a sample. The batches are
// the sums of the weights and of their squares.
func estimate(stale, all, staleBatches, batches, squares float64) Estimate {
	if all == 0 || batches == 0 {
		return Estimate{Share: math.NaN(), Below: 1}
	}
	n := batches * batches / squares // Kish's effective sample size
	return Estimate{Share: stale / all, Below: min(upper(staleBatches/batches*n)/n, 1), Batches: n}
}

// upper returns the mean of a Poisson distribution that has n events or fewer in 5% of all cases.
// It uses the approximation of Wilson and Hilferty. With 1% more, that is never below the exact
// bound.
func upper(n float64) float64 {
	if n == 0 {
		return 3
	}
	k := n + 1
	root := 1 - 1/(9*k) + 1.6449/(3*math.Sqrt(k))
	return 1.01 * k * root * root * root
}

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

// InTime returns the share within each of Limits, such as "99.9% within 1s". It returns nil without
// invalidations.
func (w *Window) InTime() (list []string) {
	for _, limit := range Limits {
		if share := w.Within(limit); share.All > 0 {
			list = append(list, fmt.Sprintf("%s within %s", share, limit))
		}
	}
	return list
}

// Entries describes what checks of the cache found. It returns "" without a check.
func (w *Window) Entries() string {
	entry, invalidation := w.StalePerEntry(), w.StalePerInvalidation()
	switch {
	case w.Checked == 0:
		return ""
	case w.WithEntry == 0:
		return fmt.Sprintf("no stale entry: %d keys checked, none had an entry", w.Checked)
	case w.Stale == 0:
		return fmt.Sprintf("no stale entry in %d checked (below %s with 95%% confidence)", w.WithEntry, percent(entry.Below))
	}
	return fmt.Sprintf("%d stale of %d entries checked: about %s of entries (below %s with 95%% confidence), %s of invalidations",
		w.Stale, w.WithEntry, percent(entry.Share), percent(entry.Below), percent(invalidation.Share))
}

// percent returns a share with two digits.
func percent(share float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(100*share, 'g', 2, 64), 64) // it is a number
	return strconv.FormatFloat(rounded, 'f', -1, 64) + "%"
}
