package worker

import (
	"context"
	"sync/atomic"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// A route is a channel that the worker publishes on.
type route struct {
	channel string
	format  protocol.Format
	moved   string // the channel of the current map, if that is another one
}

// routes are where a worker publishes: on the channel of its map and, when a reload has changed that, on those of the
// maps before, until the worker is restarted, so that whoever listens there goes on hearing everything. Safe for
// concurrent use by one that sets and many that read.
type routes struct{ list atomic.Pointer[[]route] }

// set notes a map that is loaded now.
func (r *routes) set(m *invalidation.Map) {
	list := []route{{channel: m.Channel(), format: m.Format()}}
	if old := r.list.Load(); old != nil {
		for _, before := range *old {
			if before.channel != m.Channel() {
				before.moved = m.Channel()
				list = append(list, before)
			}
		}
	}
	r.list.Store(&list)
}

// all lists the routes, that of the current map first.
func (r *routes) all() []route { return *r.list.Load() }

// beating lists the routes that heartbeats take: none while the map asks for the array format, which has no room for
// them.
func (r *routes) beating() (list []route) {
	all := r.all()
	if all[0].format == protocol.FormatArray {
		return nil
	}
	for _, route := range all {
		if route.format != protocol.FormatArray {
			list = append(list, route)
		}
	}
	return list
}

// publish announces news on all routes, as they are now, after what it announces was unlinked: a reader
// that leaves a channel for another one forgets everything, and what is announced on the old one alone was unlinked
// before the worker said that it had moved. It returns how many messages were
// published, their numbers, and how many heard each at least, on all routes together; -1: not known.
func (w *engine) publish(ctx context.Context, news keyspace.News) (done keyspace.Published, err error) {
	for _, r := range w.maps.routes.all() {
		n, err := w.redis.Publish(ctx, r.channel, r.format, news)
		done.Messages += n.Messages
		done.Runs = append(done.Runs, n.Runs...)
		if done.Receivers += n.Receivers; n.Receivers < 0 {
			done.Receivers = -1
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
