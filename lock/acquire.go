package lock

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/credentials"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lock/internal/locking"
)

// The pauses between two attempts of a waiter that gets no wake-up.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// TryAcquire makes one attempt, and returns a wrapped *HeldError if another holder has the lock. In
// Redis it may overtake callers of Acquire. With MySQL it mints a fencing token, and waits for it
// as Acquire does. Other errors are as with Acquire.
func (l *Locker) TryAcquire(ctx context.Context, name string) (held *Held, err error) {
	defer func(began time.Time) { l.counts.answered(held, err, began) }(time.Now())
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	if ctx.Err() != nil {
		return nil, gaveUp(name, context.Cause(ctx), nil, nil)
	}
	held, _, err = l.attempt(ctx, locking.Claim{Name: name, Token: locking.NewToken()}, false)
	return held, err
}

// Acquire waits until it has the lock or ctx ends, so give ctx a deadline. Callers of one process
// get the lock in the order of their calls. The Locker extends the lock until Release; ctx ends
// neither the lock nor its Context.
//
// If a server does not answer, or cannot serve, for example a Redis at its maxmemory, Acquire
// retries with exponential backoff and jitter until ctx ends. With Config.FailFast it returns the
// first error. It returns an error immediately if a retry cannot help, for example if the account
// is refused.
//
// The error wraps
//
//   - a *HeldError and the error of ctx, if another holder had the lock until the end;
//   - ErrGuardOpen, if it got the lock and released it, because the guarded transaction of an
//     earlier holder is still open;
//   - or the error of a server, with the error of ctx if ctx has ended.
func (l *Locker) Acquire(ctx context.Context, name string) (held *Held, err error) {
	defer func(began time.Time) { l.counts.answered(held, err, began) }(time.Now())
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	q := l.queues.join(name)
	defer l.queues.leave(name, q)
	select {
	case q.front <- struct{}{}:
		defer func() { <-q.front }()
	case <-ctx.Done():
		return nil, gaveUp(name, context.Cause(ctx), q.told.Load(), nil)
	}
	c, queued, woken := locking.Claim{Name: name, Token: locking.NewToken()}, false, false
	defer func() {
		if queued {
			l.launch(func() { l.drop(c) })
		}
		if woken && !l.launch(func() { l.service.PassOn(c) }) {
			l.service.PassOn(c) // the locker is closed, and others wait all the same
		}
	}()
	if l.service.Yields(c) {
		c.Waited = true
		var err error
		if woken, err = l.await(ctx, c, l.nextPause(locking.Answer{}, l.pause)); err != nil {
			return nil, gaveUp(name, err, q.told.Load(), nil)
		}
	}
	var failed error // of the last attempt
	for pause := l.pause; ; pause = min(2*pause, max(longestPause, l.pause)) {
		if ctx.Err() != nil {
			return nil, gaveUp(name, context.Cause(ctx), q.told.Load(), failed)
		}
		held, answer, err := l.attempt(ctx, c, true)
		queued = answer.Queued
		woken = woken && !answer.Acquired // or else its release wakes the next one
		told, others := errors.AsType[*HeldError](err)
		switch {
		case err == nil:
			q.told.Store(nil)
			return held, nil
		case others:
			q.told.Store(told)
			c.Waited, failed = true, nil
			if woken, err = l.await(ctx, c, l.nextPause(answer, pause)); err != nil {
				return nil, gaveUp(name, err, told, nil)
			}
		case ctx.Err() != nil: // in the middle of a question
			return nil, gaveUp(name, context.Cause(ctx), q.told.Load(), err)
		case l.config.FailFast || !passing(err):
			return nil, err
		default:
			failed = err
			l.counts.retries.Add(1)
			rest := min(pause, longestPause) // with jitter: contenders and other processes do the same
			if err := l.waitFor(ctx, nil, rest/2+rand.N(rest)); err != nil {
				return nil, gaveUp(name, err, q.told.Load(), failed)
			}
		}
		if !queued {
			c.Token = locking.NewToken()
		}
	}
}

// waitFor returns after wait, or when again is closed. The error is why ctx or the Locker has ended.
func (l *Locker) waitFor(ctx context.Context, again <-chan struct{}, wait time.Duration) error {
	select {
	case <-again:
		return nil
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.life.Done():
		return ErrClosed
	}
}

// nextPause returns the pause between two attempts of a waiter that gets no wake-up.
func (l *Locker) nextPause(told locking.Answer, pause time.Duration) time.Duration {
	if told.Queued { // it is woken when its turn comes
		return l.config.TTL/2 + rand.N(l.config.TTL)
	}
	wait := pause/2 + rand.N(pause)
	if told.Left > 0 {
		// waiters spread out when a lease ends without a release
		wait = min(wait, told.Left+rand.N(firstPause))
	}
	return wait
}

// gaveUp returns an error with the holder of the lock, or else with the last failure.
func gaveUp(name string, why error, told *HeldError, failed error) error {
	switch {
	case told != nil:
		return fmt.Errorf("acquire: %w: %w", told, why)
	case failed == nil:
		return fmt.Errorf("acquire lock %q: %w", name, why)
	case errors.Is(failed, why):
		return failed
	}
	return fmt.Errorf("%w: %w", failed, why)
}

// await returns after a release, or after wait. It reports whether a release has woken this claim,
// even if it returns an error.
func (l *Locker) await(ctx context.Context, c locking.Claim, wait time.Duration) (woken bool, err error) {
	again, done := l.service.Released(c)
	err = l.waitFor(ctx, again, wait)
	return done(), err
}

// attempt asks the backend once, and mints. A *HeldError comes with the answer of the backend.
func (l *Locker) attempt(ctx context.Context, c locking.Claim, wait bool) (*Held, locking.Answer, error) {
	if l.mint != nil {
		// the lock would wait for MySQL needlessly, and others for the lock
		if err := l.mint.ready(ctx); err != nil {
			return nil, locking.Answer{}, fmt.Errorf("acquire lock %q: %w", c.Name, err)
		}
	}
	c, told, err := l.claim(ctx, c, wait)
	if err != nil {
		l.launch(func() { l.drop(c) }) // it may have been had
		return nil, locking.Answer{}, fmt.Errorf("acquire lock %q: %w", c.Name, err)
	}
	if !told.Acquired {
		return nil, told, fmt.Errorf("acquire: %w", &HeldError{Name: c.Name, Holder: told.Holder, Since: told.Since, For: told.Held})
	}
	held, err := l.hold(ctx, c)
	if err == nil && l.mint != nil {
		err = l.mintFor(ctx, held)
	}
	if err != nil {
		return nil, told, fmt.Errorf("acquire lock %q: %w", c.Name, err)
	}
	return held, told, nil
}

// claim makes one claim, and another one as long as contenders hinder each other, for Timeout at
// most. The last one is returned.
func (l *Locker) claim(ctx context.Context, c locking.Claim, wait bool) (last locking.Claim, told locking.Answer, err error) {
	c.Asked = locking.Now()
	first := c.Asked
	for spread := time.Duration(1); ; spread *= 2 {
		limited, cancel := context.WithTimeout(ctx, l.config.Timeout)
		told, err = l.service.Acquire(limited, c, wait)
		cancel()
		if told.Lost && ctx.Err() == nil && locking.Now()-first < l.config.Timeout && l.giveBack(c) {
			c.Token, c.Asked = locking.NewToken(), locking.Now()
			continue
		}
		if err != nil || !told.Split {
			return c, told, err
		}
		// in proportion to a round trip
		pause := rand.N(1 + spread*(locking.Now()-c.Asked))
		if locking.Now()+pause-first > l.config.Timeout || sleep.For(ctx, pause) != nil {
			return c, told, err
		}
		c.Token, c.Asked = locking.NewToken(), locking.Now()
	}
}

// mintFor writes the token while the lock is extended. A caller that gives up does not wait for the
// end of it, but the lock does while MySQL answers: a token that is written late would be that of a
// holder long gone.
func (l *Locker) mintFor(ctx context.Context, held *Held) error {
	done := make(chan error, 1)
	if !l.launch(func() { done <- l.mint.storeToken(ctx, held.claim) }) {
		return ErrClosed
	}
	select {
	case err := <-done:
		if err == nil {
			err = held.check()
		}
		if err != nil {
			_ = held.Release() // err says more
		}
		return err
	case <-ctx.Done():
		if !l.launch(func() { <-done; _ = held.Release() }) {
			return ErrClosed
		}
		return context.Cause(ctx)
	}
}

// drop releases what an attempt that failed may have locked.
func (l *Locker) drop(c locking.Claim) {
	_ = l.free(c) // its lease ends anyway
	l.dropLate(c)
}

// dropLate releases a claim again at the end of its window: until then a copy of its request may
// still arrive and take the lock.
func (l *Locker) dropLate(c locking.Claim) {
	if left := c.Asked + l.config.Timeout - locking.Now(); left > 0 {
		_ = sleep.For(l.life, left)
		_ = l.free(c)
	}
}

// giveBack releases a claim whose request got no reply, and reports whether the backend has
// confirmed the release.
func (l *Locker) giveBack(c locking.Claim) bool {
	return l.free(c) == nil && l.launch(func() { l.dropLate(c) })
}

func (l *Locker) free(c locking.Claim) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.config.Timeout)
	defer cancel()
	_, err := l.service.Release(ctx, c)
	return err
}

// queues are the callers of this process that wait for locks: one of each name asks the backend, at
// the front.
type queues struct {
	mu     sync.Mutex
	byName map[string]*queue
}

// A queue holds the callers of one name.
type queue struct {
	front chan struct{} // has room for one, who asks
	users int
	told  atomic.Pointer[HeldError] // the front last, for those behind who give up
}

// join puts the caller in the queue of a name, until leave.
func (q *queues) join(name string) *queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.byName[name]
	if one == nil {
		one = &queue{front: make(chan struct{}, 1)}
		q.byName[name] = one
	}
	one.users++
	return one
}

func (q *queues) leave(name string, one *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(q.byName, name)
	}
}

// passingReplies are how the replies of Redis begin that end without a change of the account or the
// settings.
var passingReplies = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF",
	"BUSY", "OOM", "ERR max number of clients"}

// passing reports whether another attempt may succeed without a change of the account or the
// settings.
func passing(err error) bool {
	if q, ok := errors.AsType[*quorumError](err); ok && len(q.failed) > 0 {
		return !slices.ContainsFunc(q.failed, func(one error) bool { return !passing(one) })
	}
	if credentials.TLSCure(err, "") != "" || errors.Is(err, ErrClosed) || errors.Is(err, ErrGuardOpen) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if mysqlerr.Number(err) != 0 {
		return mysqlerr.IsPassing(err)
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return slices.ContainsFunc(passingReplies, func(begin string) bool {
			// within a script, before Redis 7
			return strings.HasPrefix(reply.Error(), begin) || strings.Contains(reply.Error(), ": -"+begin)
		})
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return slices.ContainsFunc([]error{context.DeadlineExceeded, context.Canceled, io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn,
		mysql.ErrInvalidConn, redis.ErrPoolTimeout, net.ErrClosed, errUnreachable, errClock, ErrLost},
		func(one error) bool { return errors.Is(err, one) })
}
