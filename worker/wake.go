package worker

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/internal/keyspace"
)

// A wakeListener receives wake-ups.
type wakeListener struct {
	channel    string
	redis      listenPort
	wake       chan<- struct{}
	subscribed func(error)
	count      prometheus.Counter
}

// run turns messages on the wake channel into polls. A message is only a hint that a transaction
// has committed. Polling finds the commits of messages that are lost, or sent while Redis is
// unavailable.
func (l *wakeListener) run(ctx context.Context) {
	l.redis.Listen(ctx, l.channel, keyspace.Listener{
		Heard: func() {
			l.count.Inc()
			notify(l.wake)
		},
		Subscribed: l.subscribed,
	})
}
