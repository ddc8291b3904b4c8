package cache

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Turns limit the commands in flight to the connections of the client's pool, so that what a
// command waits in a burst is no part of its timeout, which would speak against Redis. Those in
// flight end within the timeout, so waiting commands find out too if Redis does not answer. Clients
// of a Cluster have no turns: their pools are one per node, and a node that does not answer would
// use up the turns of the others. Safe for concurrent use.
type turns struct {
	free chan struct{} // nil: nothing waits
	told complaints
}

// mostTurns is for how many timeouts a command waits for its turn.
const mostTurns = 20

// waiterKey is the key of the context that ends the wait of a command for its turn, if that is not
// the command's own.
type waiterKey struct{}

// detached returns a context that does not end a command that was sent. ctx ends its wait before.
func detached(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), waiterKey{}, ctx)
}

// take waits for a turn. held reports that the caller must give it back. After Close nothing waits.
// The error is the context's, or a fault that names the pool.
func (t *turns) take(ctx context.Context, b *backend) (held bool, waited time.Duration, err error) {
	if t.free == nil {
		return false, 0, nil
	}
	select {
	case t.free <- struct{}{}:
		return true, 0, nil
	default:
	}
	if waiter, ok := ctx.Value(waiterKey{}).(context.Context); ok {
		ctx = waiter
	}
	var closed <-chan struct{}
	if b.stalls.life != nil {
		closed = b.stalls.life.Done()
	}
	began := time.Now()
	timer := time.NewTimer(mostTurns * b.timeout)
	defer timer.Stop()
	select {
	case t.free <- struct{}{}:
		return true, time.Since(began), nil
	case <-closed:
		return false, 0, nil
	case <-ctx.Done():
		return false, 0, ctx.Err()
	case <-timer.C:
	}
	select {
	case t.free <- struct{}{}: // this process may not have run
		return true, time.Since(began), nil
	default:
		waited = time.Since(began)
		t.tell(b, waited)
		return false, 0, fmt.Errorf("%w: other commands used all %d connections of the client's pool for %v", ErrRedisTimeout, cap(t.free), waited)
	}
}

// answered logs that a command, which was answered then, had waited for longer than one may take.
func (t *turns) answered(b *backend, began time.Time, waited time.Duration) {
	if waited > b.timeout && waited-b.stalls.stalled(began.Add(-waited), began) > b.timeout {
		t.tell(b, waited)
	}
}

// tell logs at most once per minute that commands wait.
func (t *turns) tell(b *backend, waited time.Duration) {
	if t.told.due() {
		b.news.add(func() {
			b.logger.LogAttrs(context.Background(), slog.LevelWarn, "commands wait for the connections of the client's pool",
				slog.Int("pool_size", cap(t.free)), slog.Duration("waited", waited), slog.String("cure", "raise PoolSize of Config.Redis, or make fewer calls at once"))
		})
	}
}
