package console

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// A clockGap is how far the clock of Redis is ahead of the database's: at most most, and at least
// unsure less. Entries have the time of Redis, and sweeps that of the database.
type clockGap struct{ most, unsure time.Duration }

// readGap compares the clocks, or returns nil if one cannot be read.
func readGap(ctx context.Context, c *Console, key string) *clockGap {
	if c.db == nil {
		return nil
	}
	began := time.Now()
	in, gap := time.Time{}, &clockGap{}
	if c.db.Side.GetContext(ctx, &in, "SELECT UTC_TIMESTAMP(6)") != nil {
		return nil
	}
	if c.inRedis(func(redis *keyspace.Contents) error {
		at, err := redis.Time(ctx, key)
		gap.most, gap.unsure = at.Sub(in), time.Since(began)
		return err
	}) != nil {
		return nil
	}
	return gap
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
