package store

import (
	"sync/atomic"
	"time"
)

// A databaseClock knows how far the database's clock is ahead of this process' one. Safe for concurrent use.
type databaseClock struct{ ahead atomic.Int64 } // nanoseconds

// observe notes what the database's clock said at some time between sent and now.
func (c *databaseClock) observe(sent time.Time, said time.Time) {
	c.ahead.Store(int64(said.Sub(sent.Add(time.Since(sent) / 2))))
}

// Age is how old a row was at a time of this process' clock, by the database's clock as of the last PollState; by this
// process' one before the first. Plain SQL may write any time: what lies ahead has no age.
func (s *Store) Age(r *ClaimedRow, at time.Time) time.Duration {
	return max(at.Add(time.Duration(s.clock.ahead.Load())).Sub(r.CreatedAt), 0)
}
