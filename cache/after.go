package cache

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// A Checker knows whether what the worker has to do for a caller's own writes is done. Package
// outbox has one for the token of a write: outbox.NewCheck. It is asked once for each call that it
// is given to, and must be safe for concurrent use.
type Checker interface {
	// Settled reports whether the keys that the writes made stale are gone from Redis. left is how
	// long the writes still matter: if it is 0, they no longer matter, regardless of the other
	// results. An error or a panic means that the answer is unknown. ctx ends with the caller's
	// context, after Config.HardTimeout, and when the Cache is closed.
	Settled(ctx context.Context) (settled bool, left time.Duration, err error)
}

// After returns a copy of the policy for a caller that must read its own writes, from whichever
// process they come. A nil policy is Config.Policy.
//
// Until the writes are settled, a call reads neither L1 nor Redis and joins no load of another
// caller: it calls its loader, which must read the primary. The result is stored if Redis accepts
// it, and a failed load returns no old value. The same holds while check fails, and for writes that
// are never settled. Once the writes are settled, a call skips only L1, which may not have received
// the message of the worker yet.
func (p *Policy) After(check Checker) *Policy {
	with := p.copied()
	with.after = check
	return with
}

// GetAfter is like Get, for a caller that must read its own writes: see Policy.After. Until these
// are settled, the error is ErrMiss.
func GetAfter[T any](ctx context.Context, c *Cache, key string, check Checker) (T, error) {
	if check == nil {
		return Get[T](ctx, c, key)
	}
	return cached[T](ctx, c, key, c.config.Policy.After(check))
}

// A standing is the constraint on a read that the writes of its caller require.
type standing uint8

const (
	anything  standing = iota // no writes, or none that still matter
	notMemory                 // they are settled
	loaded                    // they are not, or it is unknown
)

// standing calls the Checker of the policy. If the context of the caller ends meanwhile, the call
// continues with it, and ends as one without a Checker does. The error is ErrClosed.
func (c *Cache) standing(ctx context.Context, p *Policy) (standing, error) {
	if p.after == nil {
		return anything, nil
	}
	limited, cancel := context.WithTimeout(ctx, c.config.HardTimeout)
	defer cancel()
	defer context.AfterFunc(c.run.life, cancel)()
	settled, left, err := ask(limited, p.after)
	switch {
	case c.run.life.Err() != nil:
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

// ask asks a Checker, and makes an error of a panic.
func ask(ctx context.Context, check Checker) (settled bool, left time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the Checker panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return check.Settled(ctx)
}

// complaints limits log messages to one per minute.
type complaints struct{ last atomic.Int64 }

func (c *complaints) due() bool {
	now, last := time.Now().Unix(), c.last.Load()
	return now-last >= 60 && c.last.CompareAndSwap(last, now)
}
