package worker

import (
	"context"

	"github.com/unstale/unstale/internal/keyspace"
)

// listen turns messages on the wake channel into polls. A message is only a hint that somebody committed: what is lost,
// or comes while Redis is away, is found by polling.
func (w *engine) listen(ctx context.Context) {
	w.redis.Listen(ctx, w.cfg.WakeChannel, keyspace.Listener{
		Heard: func() {
			w.metrics.wakes.Inc()
			notify(w.wake)
		},
		Subscribed: w.health.subscribed,
	})
}
