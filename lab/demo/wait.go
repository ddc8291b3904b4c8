package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// roundLimit bounds one change, from the commit until it is complete. A change takes tens of
	// milliseconds; the limit is for a machine under load, and below the shortest TTL.
	roundLimit = 25 * time.Second
	// lookInterval is the pause between two looks at Redis, and so the error of the times in the
	// report.
	lookInterval = time.Millisecond
	// settleInterval is the pause between two looks at the outbox.
	settleInterval = 5 * time.Millisecond
)

// seeThrough waits until the worker has finished the change and all messages have arrived. It
// records when each key was first seen gone, and when each message arrived.
func (p *player) seeThrough(ctx context.Context, r *round) error {
	ctx, cancel := context.WithTimeoutCause(ctx, roundLimit, fmt.Errorf("not finished within %s", roundLimit))
	defer cancel()
	looks := time.NewTicker(lookInterval)
	defer looks.Stop()
	var looked time.Time // at the outbox
	for {
		all, err := p.look(ctx, r)
		if err != nil {
			return because(ctx, err)
		}
		if all || time.Since(looked) >= settleInterval {
			settled, err := p.settled(ctx)
			if err != nil {
				return because(ctx, err)
			}
			if settled {
				break
			}
			looked = time.Now()
		}
		if err := p.next(ctx, r, looks.C); err != nil {
			return because(ctx, err)
		}
	}
	if _, err := p.look(ctx, r); err != nil { // keys that were deleted since the last look
		return because(ctx, err)
	}
	return because(ctx, p.hearAll(ctx, r))
}

// because replaces the error of a call that the round's limit cut off.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// next waits for a tick or a message.
func (p *player) next(ctx context.Context, r *round, tick <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-p.demo.ended:
		return workerEnded(err)
	case h := <-p.demo.listener.events:
		return p.note(r, h)
	case <-tick:
		return nil
	}
}

func workerEnded(err error) error { return errors.Join(errors.New("the worker stopped"), err) }

// hearAll sends a fence and waits for it. All messages that the worker published earlier have then
// arrived.
func (p *player) hearAll(ctx context.Context, r *round) error {
	text, err := p.demo.listener.fence(ctx)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case h := <-p.demo.listener.events:
			if h.fence == text {
				return nil
			}
			if err := p.note(r, h); err != nil {
				return err
			}
		}
	}
}

// look checks the change's stale keys that were not gone yet, and reports whether all are gone.
func (p *player) look(ctx context.Context, r *round) (all bool, err error) {
	all = true
	for i := range r.targets {
		t := &r.result.Targets[i]
		if t.GoneMS != nil {
			continue
		}
		missing, err := p.demo.cache.missing(ctx, r.targets[i].keys)
		if err != nil {
			return false, err
		}
		if len(missing) < len(r.targets[i].keys) {
			all = false
			continue
		}
		t.GoneMS = milliseconds(time.Since(r.committed))
	}
	return all, nil
}

// settledSQL reports whether the outbox has no work left. Contract: no lock, a handful of rows, one
// snapshot, so that a settled row and its sweep cannot both be missed. UTC_TIMESTAMP is the start
// of the statement. The snapshot can be later and show a sweep requested meanwhile, so only
// postponed sweeps are ignored.
const settledSQL = `SELECT NOT EXISTS (SELECT 1 FROM cache_outbox) AND NOT EXISTS (SELECT 1 FROM cache_outbox_delayed)
	AND NOT EXISTS (SELECT 1 FROM cache_outbox_sweeps WHERE not_before <= UTC_TIMESTAMP(6) + INTERVAL 5 SECOND)`

func (p *player) settled(ctx context.Context) (settled bool, err error) {
	if err := p.demo.shop.db.QueryRowContext(ctx, settledSQL).Scan(&settled); err != nil {
		return false, fmt.Errorf("look at the outbox: %w", err)
	}
	return settled, nil
}
