package shadow

import "context"

func (c *Checker) Step(ctx context.Context) { c.step(ctx) }

// Waiting returns how many reports wait for their check.
func (c *Checker) Waiting() int { return len(c.waiting) }

const (
	Keep        = keep
	MostWaiting = mostWaiting
)
