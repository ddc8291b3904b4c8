package maintenance

import (
	"context"
	"time"
)

// Tick makes the looks that are due so long from now.
func (c *SpotChecker) Tick(ctx context.Context, in time.Duration) { c.tick(ctx, time.Now().Add(in)) }

// Note writes the counts now.
func (c *SpotChecker) Note(ctx context.Context) { c.writeCounts(ctx) }

// Retry ends the pauses after denials.
func (c *SpotChecker) Retry() { c.denied, c.repair.denied = time.Time{}, time.Time{} }

// Refill fills the bucket.
func (c *SpotChecker) Refill() { c.sample.tokens = c.sample.rate }

// Drop forgets the checks that wait.
func (c *SpotChecker) Drop() {
	for i := range c.sample.queues {
		c.sample.queues[i] = nil
	}
	c.sample.spare = nil
}
