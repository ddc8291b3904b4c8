package cache

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Turns limit the commands in flight to the connections of the client's pool, so that what a
// command waits in a burst is no part of its timeout, which would speak against Redis. Those in
// flight end within the timeout, so waiting commands find out too if Redis does not answer. In a
// Cluster, whose pools are one per node, all nodes together have the turns of one. Safe for
// concurrent use.
type turns struct {
	free chan struct{} // nil: the pool is unknown
	told complaints
}

// mostTurns is for how many timeouts a command waits for its turn.
const mostTurns = 20

// take waits for a turn, which the caller gives back. The error is the context's, or a fault that
// names the pool.
func (t *turns) take(ctx context.Context, b *backend) error {
	select {
	case t.free <- struct{}{}:
		return nil
	default:
	}
	if t.free == nil {
		return nil
	}
	began := time.Now()
	timer := time.NewTimer(mostTurns * b.timeout)
	defer timer.Stop()
	select {
	case t.free <- struct{}{}:
		if waited := time.Since(began); waited > b.timeout {
			t.tell(b, waited)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		waited := time.Since(began)
		t.tell(b, waited)
		return fmt.Errorf("%w: other commands used all %d connections of the client's pool for %v", ErrRedisTimeout, cap(t.free), waited)
	}
}

// give ends a turn.
func (t *turns) give() {
	if t.free != nil {
		<-t.free
	}
}

// tell logs at most once per minute that a command has waited for longer than one may take.
func (t *turns) tell(b *backend, waited time.Duration) {
	if t.told.due() {
		b.news.add(func() {
			b.logger.LogAttrs(context.Background(), slog.LevelWarn, "commands wait for the connections of the client's pool",
				slog.Int("pool_size", cap(t.free)), slog.Duration("waited", waited), slog.String("cure", "raise PoolSize of Config.Redis, or make fewer calls at once"))
		})
		b.news.tell()
	}
}
