package spotcheck

import (
	"context"
	"time"
)

// Tick makes the looks that are due so long from now.
func (c *Checker) Tick(ctx context.Context, in time.Duration) { c.tick(ctx, time.Now().Add(in)) }

// Note writes the counts now.
func (c *Checker) Note(ctx context.Context) { c.note(ctx) }

// Retry ends the pauses after denials.
func (c *Checker) Retry() { c.denied, c.repair.denied = time.Time{}, time.Time{} }

// Refill fills the bucket.
func (c *Checker) Refill() { c.sample.tokens = c.sample.rate }

// Drop forgets the checks that wait.
func (c *Checker) Drop() {
	for i := range c.sample.queues {
		c.sample.queues[i] = nil
	}
	c.sample.spare = nil
}
