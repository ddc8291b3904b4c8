package queue

import (
	"sync/atomic"
	"time"
)

// A databaseClock estimates how far the database's clock is ahead of this process's clock. Safe for
// concurrent use.
type databaseClock struct{ ahead atomic.Int64 } // nanoseconds

// observe records a reading of the database's clock that was taken between sent and now.
func (c *databaseClock) observe(sent time.Time, said time.Time) {
	c.ahead.Store(int64(said.Sub(sent.Add(time.Since(sent) / 2))))
}

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
