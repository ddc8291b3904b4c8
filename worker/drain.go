package worker

import (
	"context"
	"fmt"
)

// drain processes what is there now, due rows included, and heals before that.
func (l *loop) drain(ctx context.Context) (Result, error) {
	var total Result
	pause, err := l.paused(ctx)
	if err == nil {
		_, err = l.queue.PollState(ctx) // for the database's clock
	}
	if err != nil {
		return total, err
	}
	if pause != nil {
		return total, fmt.Errorf("all workers are paused %s; see 'unstale resume'", pause)
	}
	l.signals.paused.Store(false)
	if err := l.healer.All(ctx); err != nil {
		return total, err
	}
	for _, next := range []*lane{l.lanes.hot, l.lanes.due} {
		for {
			if ctx.Err() != nil {
				return total, ctx.Err()
			}
			r, err := l.lanes.light(ctx, next)
			if err == nil {
				err = l.lanes.heavyTurn(ctx, &r)
			}
			total.add(r)
			if err != nil {
				return total, err
			}
			if r.Claimed == 0 && !r.Full {
				break
			}
		}
	}
	return total, nil
}
