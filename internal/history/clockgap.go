package history

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/session"
)

// A clockGap is how far the clock of Redis is ahead of the database's: at most most, and at least
// unsure less. Entries have the time of Redis, and sweeps that of the database.
type clockGap struct{ most, unsure time.Duration }

// readGap compares the clocks, or returns nil if one cannot be read.
func (c *Finder) readGap(ctx context.Context, key string) *clockGap {
	if c.DB == nil {
		return nil
	}
	began, gap := time.Now(), &clockGap{}
	in, err := ReadClock(ctx, c.DB)
	if err != nil {
		return nil
	}
	if c.Redis(func(redis *keyspace.Contents) error {
		at, err := redis.Time(ctx, key)
		gap.most, gap.unsure = at.Sub(in), time.Since(began)
		return err
	}) != nil {
		return nil
	}
	return gap
}

// Contract: reads no table.
const nowSQL = "SELECT UTC_TIMESTAMP(6)"

// ReadClock returns the time of MySQL.
func ReadClock(ctx context.Context, db *session.Sessions) (at time.Time, err error) {
	if err = db.Side.GetContext(ctx, &at, nowSQL); err != nil {
		err = fmt.Errorf("read the clock: %w", err)
	}
	return at, err
}

// compare returns 1 if a time of Redis is certainly after a time of the database, -1 if it is
// certainly before it, and 0 otherwise.
func (g *clockGap) compare(redis, database time.Time) int {
	switch {
	case g == nil:
		return 0
	case redis.After(database.Add(g.most)):
		return 1
	case redis.Before(database.Add(g.most - g.unsure)):
		return -1
	}
	return 0
}
