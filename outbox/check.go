package outbox

import (
	"context"
	"sync"
	"time"
)

// A Check lets a reader see its own writes, which are the writes of a token: see Policy.After in
// package cache. Create one Check per request, and use it for all reads of the request. It is safe
// for concurrent use.
type Check struct {
	db    Pool
	token Token

	mu    sync.Mutex
	final *verdict  // no more queries are made
	until time.Time // when the token ends, where final is set
}

// NewCheck returns a Check that queries db, which must be the primary. For a zero token, it does
// not query.
func NewCheck(db Pool, token Token) *Check { return &Check{db: db, token: token} }

// Settled is like the function [Settled]. It also returns how much of TokenLifetime is left, by the
// clock of the database, or 0 for a zero token. Once the rows are settled or dead, it does not
// query again.
func (c *Check) Settled(ctx context.Context) (settled bool, left time.Duration, err error) {
	if c.token.IsZero() {
		return true, 0, nil
	}
	v, until := c.known()
	if v == nil {
		asked := time.Now()
		told, err := judge(ctx, c.db, c.token)
		if err != nil {
			return false, TokenLifetime, wrap("ask for invalidations", err)
		}
		v, until = &told, asked.Add(TokenLifetime-told.age)
		c.learn(v, until)
	}
	if left = time.Until(until); left <= 0 {
		return true, 0, nil
	}
	return v.settled, left, wrap("ask for invalidations", v.err)
}

// known returns the final state, or nil if it must be queried.
func (c *Check) known() (*verdict, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.final, c.until
}

// learn keeps a verdict that is final.
func (c *Check) learn(v *verdict, until time.Time) {
	if v.settled || v.err != nil || v.age > TokenLifetime {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.final, c.until = v, until
	}
}
