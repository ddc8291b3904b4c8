package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// A Staleness is the information, in addition to the counts of a Status, that shows whether
// anything is stale and why.
type Staleness struct {
	At           time.Time // UTC, the database's clock
	ReadOnly     bool      // the server refuses writes of accounts without a privilege for that
	Failing      []FailingRows
	DeadFor      time.Duration // since the oldest dead letter died; 0 without one
	Unswept      bool          // a request was never swept
	UnsweptFor   time.Duration // since the oldest of those; 0 if its time is in the future
	Workers      []WorkerNote  // of the last day, the most recent record first
	WorkersError error         // a privilege is missing to read them
	// a running replay: who, its progress, since when; EndsAt is not set
	Replay *Pause
	// a replay of the last day that was killed, unless a later one completed
	BrokenReplay *AuditRecord
	// StaleEntries are those that spot checks found; StaleEntriesError is why they cannot be read.
	// Left are the latest of those that no worker has unlinked and whose TTL has not ended.
	StaleEntries      StaleCount
	Left              []OldEntry
	StaleEntriesError error
}

// PartMark begins the part of a row's error that describes what was applied without lookups.
const PartMark = "; applied without lookups: "

// FailingRows are delayed rows that failed for one reason and will be retried.
type FailingRows struct {
	Reason string        `db:"reason"`
	N      int           `db:"n"`     // among the first MaxExactCount that are due
	Error  string        `db:"error"` // of one of them
	Micros int64         `db:"age"`
	Age    time.Duration // since the oldest was created
	// WaitsForClock: one is due later than a worker delayed it
	WaitsForClock bool `db:"waits_for_clock"`
}

// Contract for all: no lock (consistent reads); one row of the index named, or MaxExactCount rows
// of it. unsweptSQL skips the requests that wait for their second sweep, at most those of one
// lease.
const (
	clockSQL   = "SELECT UTC_TIMESTAMP(6), @@GLOBAL.read_only"
	failingSQL = `SELECT reason, COUNT(*) AS n, COALESCE(MAX(error), '') AS error, MAX(TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6))) AS age,
%s AS waits_for_clock
FROM (SELECT reason, error, created_at, due_at%s FROM cache_outbox_delayed FORCE INDEX (due) ORDER BY due_at LIMIT ?) AS first_due
WHERE reason <> '' GROUP BY reason ORDER BY n DESC, reason`
	waitsForClockSQL = "COALESCE(MAX(due_at > UTC_TIMESTAMP(6) + INTERVAL retry_us + 1000000 MICROSECOND), 0)"

	deadForSQL = "SELECT TIMESTAMPDIFF(MICROSECOND, died_at, UTC_TIMESTAMP(6)) FROM cache_outbox_dead FORCE INDEX (PRIMARY) ORDER BY id LIMIT 1"
	unsweptSQL = "SELECT TIMESTAMPDIFF(MICROSECOND, requested_at, UTC_TIMESTAMP(6)) FROM cache_outbox_sweeps FORCE INDEX (PRIMARY) WHERE swept_at IS NULL ORDER BY id LIMIT 1"
)

// readStaleness reads a Staleness. If the account may not read the workers, for example an account
// of an earlier version, it reads the rest.
func (o *Overview) readStaleness(ctx context.Context, st *Staleness) error {
	if err := o.db.Side.QueryRowContext(ctx, clockSQL).Scan(&st.At, &st.ReadOnly); err != nil {
		return err
	}
	err := o.db.Side.SelectContext(ctx, &st.Failing, fmt.Sprintf(failingSQL, waitsForClockSQL, ", retry_us"), MaxExactCount)
	if mysqlerr.Number(err) == mysqlerr.NoColumn { // before migration 29
		err = o.db.Side.SelectContext(ctx, &st.Failing, fmt.Sprintf(failingSQL, "0", ""), MaxExactCount)
	}
	if err != nil {
		return err
	}
	for i := range st.Failing {
		st.Failing[i].Age = micros(st.Failing[i].Micros)
	}
	if _, err := o.readAge(ctx, &st.DeadFor, deadForSQL); err != nil {
		return err
	}
	if st.Unswept, err = o.readAge(ctx, &st.UnsweptFor, unsweptSQL); err != nil {
		return err
	}
	if st.Replay, err = o.orders.order(ctx, "replay"); err != nil {
		return err
	}
	if st.Replay == nil {
		if st.BrokenReplay, err = o.orders.brokenReplay(ctx); err != nil {
			return err
		}
	}
	if st.Workers, err = o.workers.workers(ctx); mysqlerr.Number(err) == mysqlerr.NoRight {
		st.WorkersError, err = fmt.Errorf("%w; GRANT SELECT ON cache_outbox_workers to this account", err), nil
	}
	if err != nil {
		return err
	}
	if st.StaleEntries, st.StaleEntriesError = NewStaleEntries(o.db).Count(ctx); st.StaleEntriesError == nil {
		st.Left, st.StaleEntriesError = readLeft(ctx, o.db)
	}
	if ctx.Err() != nil {
		return st.StaleEntriesError
	}
	return nil
}

// micros returns an age in microseconds as a Duration, and 0 for a time in the future.
func micros(n int64) time.Duration { return max(signedMicros(n), 0) }

// signedMicros returns an age in microseconds as a Duration, negative for a time in the future.
// Values outside the range of a Duration are clamped.
func signedMicros(n int64) time.Duration {
	return time.Duration(min(max(n, math.MinInt64/1000), math.MaxInt64/1000)) * time.Microsecond
}
