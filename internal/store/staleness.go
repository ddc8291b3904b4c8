package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// A Staleness is what tells, beside the counts of a Status, whether anything is stale and why.
type Staleness struct {
	At           time.Time // UTC, the database's clock
	ReadOnly     bool      // the server refuses writes of accounts without a privilege for that
	Failing      []FailingRows
	DeadFor      time.Duration // since the oldest dead letter died; 0 without one
	Unswept      bool          // a request was not yet swept once
	UnsweptFor   time.Duration // since the oldest of those; 0 where it lies ahead
	Workers      []WorkerNote  // of the last day, the last heard first
	WorkersError error         // a right that is missing to read them
	Replay       *Pause        // a replay under way: who, what it has done, since when; EndsAt is not set
	BrokenReplay *AuditRecord  // one of the last day that was killed, and no later one came to its end
}

// FailingRows are delayed rows that failed for one reason and are tried again.
type FailingRows struct {
	Reason string        `db:"reason"`
	N      int           `db:"n"` // among the first MaxExactCount that are due
	Error  string        `db:"error"`
	Micros int64         `db:"age"`
	Age    time.Duration // since the oldest was created
}

// Contract for all: no lock (consistent reads); one row of the index named, or MaxExactCount rows of it. unsweptSQL reads
// past the requests that settle, which are those of one lease.
const (
	clockSQL   = "SELECT UTC_TIMESTAMP(6), @@GLOBAL.read_only"
	failingSQL = `SELECT reason, COUNT(*) AS n, COALESCE(MAX(error), '') AS error, MAX(TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6))) AS age
FROM (SELECT reason, error, created_at FROM cache_outbox_delayed FORCE INDEX (due) ORDER BY due_at LIMIT ?) AS first_due
WHERE reason <> '' GROUP BY reason ORDER BY n DESC, reason`
	deadForSQL = "SELECT TIMESTAMPDIFF(MICROSECOND, died_at, UTC_TIMESTAMP(6)) FROM cache_outbox_dead FORCE INDEX (PRIMARY) ORDER BY id LIMIT 1"
	unsweptSQL = "SELECT TIMESTAMPDIFF(MICROSECOND, requested_at, UTC_TIMESTAMP(6)) FROM cache_outbox_sweeps FORCE INDEX (PRIMARY) WHERE swept_at IS NULL ORDER BY id LIMIT 1"
)

// readStaleness reads a Staleness. An account that may not read the workers, as one of an earlier version, reads the rest.
func (s *Store) readStaleness(ctx context.Context, st *Staleness) error {
	if err := s.side.QueryRowContext(ctx, clockSQL).Scan(&st.At, &st.ReadOnly); err != nil {
		return err
	}
	if err := s.side.SelectContext(ctx, &st.Failing, failingSQL, MaxExactCount); err != nil {
		return err
	}
	for i := range st.Failing {
		st.Failing[i].Age = micros(st.Failing[i].Micros)
	}
	if _, err := s.readAge(ctx, &st.DeadFor, deadForSQL); err != nil {
		return err
	}
	var err error
	if st.Unswept, err = s.readAge(ctx, &st.UnsweptFor, unsweptSQL); err != nil {
		return err
	}
	if st.Replay, err = s.order(ctx, "replay"); err != nil {
		return err
	}
	if st.Replay == nil {
		if st.BrokenReplay, err = s.brokenReplay(ctx); err != nil {
			return err
		}
	}
	if st.Workers, err = s.workers(ctx); mysqlerr.Number(err) == mysqlerr.NoRight {
		st.WorkersError, err = fmt.Errorf("%w; GRANT SELECT ON cache_outbox_workers to this account", err), nil
	}
	return err
}

// micros is an age in microseconds: what lies ahead has none.
func micros(n int64) time.Duration { return max(signedMicros(n), 0) }

// signedMicros is an age in microseconds, below 0 for what lies ahead. What a Duration cannot hold is cut.
func signedMicros(n int64) time.Duration {
	return time.Duration(min(max(n, math.MinInt64/1000), math.MaxInt64/1000)) * time.Microsecond
}
