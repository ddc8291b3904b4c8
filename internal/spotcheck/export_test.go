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
