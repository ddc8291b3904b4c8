package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// The pauses between two questions of a waiter that nobody wakes.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// TryAcquire makes one attempt, and returns a *HeldError, wrapped, if somebody has the lock. It may overtake callers of
// Acquire in Redis. With MySQL it mints a token, for which it waits as Acquire does. Other errors are as with Acquire.
func (l *Locker) TryAcquire(ctx context.Context, name string) (held *Held, err error) {
	defer func(began time.Time) { l.counts.answered(held, err, began) }(time.Now())
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	if ctx.Err() != nil {
		return nil, gaveUp(name, context.Cause(ctx), nil, nil)
	}
	held, _, err = l.attempt(ctx, claim{name: name, token: newToken()}, false)
	return held, err
}

// Acquire waits until it has the lock, as long as ctx lasts, so give it a time limit. Callers of one process are served in
// order. The lock is extended until Release; ctx ends neither the lock nor its Context.
//
// While a server does not answer, or cannot serve, Acquire tries again with exponential backoff and jitter, as long as ctx lasts;
// with Config.FailFast it returns the first error. It returns at once what does not pass by itself, such as a refused account.
//
// The error wraps a *HeldError and ctx's, if somebody had the lock till the end; ErrGuardOpen, if the lock was had and
// released again because the section before is not over; or that of a server, with ctx's if ctx has ended.
func (l *Locker) Acquire(ctx context.Context, name string) (held *Held, err error) {
	defer func(began time.Time) { l.counts.answered(held, err, began) }(time.Now())
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	q := l.queues.join(name)
	defer l.queues.leave(name, q)
	if err := q.toFront(ctx); err != nil {
		return nil, gaveUp(name, err, l.queues.told(q), nil)
	}
	defer func() { <-q.front }()
	c, queued, woken := claim{name: name, token: newToken()}, false, false
	defer func() {
		if queued {
			l.launch(func() { l.drop(c) })
		}
		if woken && !l.launch(func() { l.service.passOn(c) }) {
			l.service.passOn(c) // the locker is closed, and others wait all the same
		}
	}()
	var failed error // of the last attempt
	for pause := l.pause; ; pause = min(2*pause, max(longestPause, l.pause)) {
		if ctx.Err() != nil {
			return nil, gaveUp(name, context.Cause(ctx), l.queues.told(q), failed)
		}
		held, answer, err := l.attempt(ctx, c, true)
		queued = answer.queued
		woken = woken && !answer.acquired // or else its release wakes the next one
		var told *HeldError
		switch {
		case err == nil:
			l.queues.tell(q, nil)
			return held, nil
		case errors.As(err, &told):
			l.queues.tell(q, told)
			c.waited, failed = true, nil
			if woken, err = l.await(ctx, c, l.wait(answer, pause)); err != nil {
				return nil, gaveUp(name, err, told, nil)
			}
		case ctx.Err() != nil: // in the middle of a question
			return nil, gaveUp(name, context.Cause(ctx), l.queues.told(q), err)
		case l.config.FailFast || !passing(err):
			return nil, err
		default:
			failed = err
			l.counts.retries.Add(1)
			if err := l.rest(ctx, pause); err != nil {
				return nil, gaveUp(name, err, l.queues.told(q), failed)
			}
		}
		if !queued {
			c.token = newToken()
		}
	}
}

// rest waits before another attempt at a server that is unavailable, with jitter: contenders and other processes do the same.
func (l *Locker) rest(ctx context.Context, pause time.Duration) error {
	pause = min(pause, longestPause)
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.life.Done():
		return ErrClosed
	}
}

// wait is how long a waiter whom nobody wakes lets pass between two questions.
func (l *Locker) wait(told answer, pause time.Duration) time.Duration {
	if told.queued { // it is woken when its turn comes
		return l.config.TTL/2 + rand.N(l.config.TTL)
	}
	wait := pause/2 + rand.N(pause)
	if told.left > 0 {
		wait = min(wait, told.left+rand.N(firstPause)) // not all at once when a lease ends by itself
	}
	return wait
}

// gaveUp tells who has the lock, or else how the last attempt failed.
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

// await returns after a release, or after wait, and reports whether a release has woken this claim, also where it fails.
func (l *Locker) await(ctx context.Context, c claim, wait time.Duration) (woken bool, err error) {
	again, done := l.service.released(c)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-again:
	case <-timer.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-l.life.Done():
		err = ErrClosed
	}
	return done(), err
}

// attempt asks the backend once, and mints. A *HeldError comes with what the backend has told.
func (l *Locker) attempt(ctx context.Context, c claim, wait bool) (*Held, answer, error) {
	if l.mint != nil {
		if err := l.mint.ready(ctx); err != nil { // the lock would wait for MySQL in vain, and others for the lock
			return nil, answer{}, fmt.Errorf("acquire lock %q: %w", c.name, err)
		}
	}
	c, told, err := l.ask(ctx, c, wait)
	if err != nil {
		l.launch(func() { l.drop(c) }) // it may have been had
		return nil, answer{}, fmt.Errorf("acquire lock %q: %w", c.name, err)
	}
	if !told.acquired {
		return nil, told, fmt.Errorf("acquire: %w", &HeldError{Name: c.name, Holder: told.holder, Since: told.since, For: told.held})
	}
	held, err := l.hold(ctx, c)
	if err == nil && l.mint != nil {
		err = l.mintFor(ctx, held)
	}
	if err != nil {
		return nil, told, fmt.Errorf("acquire lock %q: %w", c.name, err)
	}
	return held, told, nil
}

// ask makes one claim, and another one as long as contenders hinder each other, for Timeout at most. The last one is returned.
func (l *Locker) ask(ctx context.Context, c claim, wait bool) (last claim, told answer, err error) {
	c.asked = now()
	first := c.asked
	for spread := time.Duration(1); ; spread *= 2 {
		limited, cancel := context.WithTimeout(ctx, l.config.Timeout)
		told, err = l.service.acquire(limited, c, wait)
		cancel()
		if told.lost && ctx.Err() == nil && now()-first < l.config.Timeout && l.giveBack(c) {
			c.token, c.asked = newToken(), now()
			continue
		}
		if err != nil || !told.split {
			return c, told, err
		}
		pause := rand.N(1 + spread*(now()-c.asked)) // in terms of what a round trip takes here
		if now()+pause-first > l.config.Timeout || sleep.For(ctx, pause) != nil {
			return c, told, err
		}
		c.token, c.asked = newToken(), now()
	}
}

// mintFor writes the token while the lock is extended. A caller that gives up does not wait for the end of it, but the lock
// does while MySQL answers: a token that is written late would be that of a holder long gone.
func (l *Locker) mintFor(ctx context.Context, held *Held) error {
	done := make(chan error, 1)
	minted := l.launch(func() { done <- l.mint.write(ctx, held.claim) })
	if !minted {
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
		late := func() { <-done; _ = held.Release() }
		if !l.launch(late) {
			return ErrClosed
		}
		return context.Cause(ctx)
	}
}

// drop releases what an attempt that failed may have locked.
func (l *Locker) drop(c claim) {
	_ = l.free(c) // it ends by itself
	l.dropLate(c)
}

// dropLate releases a claim once more at the end of its window: until then a copy of its request may still arrive, and lock.
func (l *Locker) dropLate(c claim) {
	if left := c.asked + l.config.Timeout - now(); left > 0 {
		_ = sleep.For(l.life, left)
		_ = l.free(c)
	}
}

// giveBack releases a claim of which no answer came, and reports whether the backend has confirmed it.
func (l *Locker) giveBack(c claim) bool {
	return l.free(c) == nil && l.launch(func() { l.dropLate(c) })
}

func (l *Locker) free(c claim) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.config.Timeout)
	defer cancel()
	_, err := l.service.release(ctx, c)
	return err
}
