package maintenance

import "context"

func (c *ShadowChecker) Step(ctx context.Context) { c.step(ctx) }

// Waiting returns how many reports wait for their check.
func (c *ShadowChecker) Waiting() int { return len(c.waiting) }

const (
	Keep        = keep
	MostWaiting = mostWaiting
)
