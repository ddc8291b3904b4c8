package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/session"
)

// A databaseClock estimates how far the database's clock is ahead of this process's clock. Safe for
// concurrent use.
type databaseClock struct {
	ahead         atomic.Int64 // nanoseconds
	read, setBack atomic.Bool  // see Queue.ClockSetBack
}

// createdSlack is by how much two readings of the database's clock may differ from this process's
// clock, for example while the process is stopped for a moment.
const createdSlack = time.Second

// observe records a reading of the database's clock that was taken between sent and now.
func (c *databaseClock) observe(sent time.Time, said time.Time) {
	ahead := int64(said.Sub(sent.Add(time.Since(sent) / 2)))
	if before := c.ahead.Swap(ahead); !c.read.Swap(true) || before-ahead > int64(createdSlack) {
		c.setBack.Store(true)
	}
}

// ClockSetBack reports whether the database's clock may have been set back since the last call: at
// the first reading, and if a reading was earlier than expected by more than a second.
func (q *Queue) ClockSetBack() bool { return q.clock.setBack.Swap(false) }

// Age returns the age of a row at a time of this process's clock. It uses the database's clock as
// of the last PollState, and before the first one this process's clock. An application may write
// any time with plain SQL; the age of a row from the future is 0.
func (q *Queue) Age(r *ClaimedRow, at time.Time) time.Duration {
	return max(at.Add(time.Duration(q.clock.ahead.Load())).Sub(r.CreatedAt), 0)
}

// Now returns the database's time at a time of this process's clock, as Age estimates it.
func (q *Queue) Now(at time.Time) time.Time {
	return at.Add(time.Duration(q.clock.ahead.Load()))
}

// Contract: no lock (a consistent read); the index on due_at, from the rows that are not due to its
// end, until LIMIT rows are found. Rows that the application scheduled and repeats have no reason.
const lateRetriesSQL = `SELECT id FROM cache_outbox_delayed FORCE INDEX (due)
WHERE due_at > UTC_TIMESTAMP(6) AND reason <> '' AND due_at > UTC_TIMESTAMP(6) + INTERVAL COALESCE(retry_us, ?) MICROSECOND LIMIT 1000`

// Contract: exclusive locks on the rows listed, found by primary key, and on their entries of the
// index on due_at. Repeating it is harmless.
const advanceRetriesSQL = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
STRAIGHT_JOIN cache_outbox_delayed AS o FORCE INDEX (PRIMARY) ON o.id = j.id
SET o.due_at = LEAST(o.due_at, UTC_TIMESTAMP(6) + INTERVAL COALESCE(o.retry_us, ?) MICROSECOND) WHERE o.reason <> ''`

// AdvanceRetries makes retries that are due later than a worker delayed them due after that delay,
// and returns how many. Their due time was written before the database's clock was set back. Rows
// of workers that do not record the delay are due after longest.
func (q *Queue) AdvanceRetries(ctx context.Context, longest time.Duration) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.db.Config.StatementTimeout)
	defer cancel()
	for {
		var ids []uint64
		if err := q.db.Side.SelectContext(ctx, &ids, lateRetriesSQL, longest.Microseconds()); err != nil {
			return n, fmt.Errorf("find late retries: %w", err)
		}
		if len(ids) == 0 {
			return n, nil
		}
		list, err := json.Marshal(ids)
		if err != nil {
			return n, err
		}
		changed, err := session.Affected(q.db.Side.ExecContext(ctx, advanceRetriesSQL, string(list), longest.Microseconds()))
		if err != nil {
			return n, fmt.Errorf("advance retries: %w", err)
		}
		n += int(changed)
	}
}
