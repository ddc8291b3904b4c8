package cache

import (
	"context"
	"sync/atomic"
	"time"
)

// A Checker knows whether what the worker has to do for a caller's own writes is done. Package outbox has one for the token
// of a write: outbox.NewCheck. It is asked once for each call that it is given to, and must be safe for concurrent use.
type Checker interface {
	// Settled reports whether the keys that the writes have made stale are gone from Redis, and for how long the writes
	// still matter: with a left of 0 they do no more, whatever the rest says. An error means that it is not known, or
	// that it will not be. The context ends with the caller's, after Config.HardTimeout, and with Close.
	Settled(ctx context.Context) (settled bool, left time.Duration, err error)
}

// After returns a copy of the policy for a caller who must not be given anything older than its own writes, whichever
// process has made them. A nil policy is Config.Policy.
//
// Until the writes are settled, a call looks neither into memory nor into Redis and joins no other's load: its loader, which
// must read the primary, is called each time. What it loads is stored if Redis takes it, and no old value is given out where
// it fails. It is the same while check fails, and for writes that will never be settled. Once they are, a call passes by
// memory alone, which the worker's message may not have reached.
func (p *Policy) After(check Checker) *Policy {
	with := p.copied()
	with.after = check
	return with
}

// GetAfter is Get for a caller who must not be given anything older than its own writes: see Policy.After. Until these are
// settled, the error is ErrMiss.
func GetAfter[T any](ctx context.Context, c *Cache, key string, check Checker) (T, error) {
	if check == nil {
		return Get[T](ctx, c, key)
	}
	return cached[T](ctx, c, key, c.config.Policy.After(check))
}

// A standing is what a call may be given because of its caller's own writes.
type standing uint8

const (
	anything  standing = iota // no writes, or none that matter any more
	notMemory                 // they are settled
	loaded                    // they are not, or nobody knows
)

// standing asks the policy's Checker. Where the caller's context ends meanwhile, the call goes on with it, and ends as one
// without a Checker does. The error is ErrClosed.
func (c *Cache) standing(ctx context.Context, p *Policy) (standing, error) {
	if p.after == nil {
		return anything, nil
	}
	limited, cancel := context.WithTimeout(ctx, c.config.HardTimeout)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	settled, left, err := p.after.Settled(limited)
	switch {
	case c.life.Err() != nil:
		return loaded, ErrClosed
	case ctx.Err() != nil:
		return loaded, nil
	case err == nil && left <= 0:
		return anything, nil
	case err == nil && settled:
		return notMemory, nil
	}
	c.counts.unsettled.Add(1)
	if err != nil && c.complaints.due() {
		c.config.Logger.Warn("what a caller has written is not known to be settled, so it is loaded each time", "error", err)
	}
	return loaded, nil
}

// complaints keep a log readable: one a minute.
type complaints struct{ last atomic.Int64 }

func (c *complaints) due() bool {
	now, last := time.Now().Unix(), c.last.Load()
	return now-last >= 60 && c.last.CompareAndSwap(last, now)
}
