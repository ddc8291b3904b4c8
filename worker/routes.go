package worker

import (
	"context"
	"sync/atomic"

	"github.com/unstale/unstale/internal/heartbeat"
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

// routes are the channels of a worker: the channel of its map and, if reloads have changed it, the
// channels of the earlier maps, until the worker is restarted. Subscribers of an old channel still
// receive everything. Safe for concurrent use by one goroutine that sets and many that read.
type routes struct{ list atomic.Pointer[[]route] }

// set records a newly loaded map.
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

// Numbered implements heartbeat.Channels: messages of the array format have no numbers.
func (r *routes) Numbered() (list []heartbeat.Channel) {
	for _, route := range r.all() {
		if route.format != protocol.FormatArray {
			list = append(list, heartbeat.Channel{Name: route.channel, Moved: route.moved})
		}
	}
	return list
}

// Beating implements heartbeat.Channels: none takes heartbeats while the map asks for the array
// format, which has no room for them.
func (r *routes) Beating() []heartbeat.Channel {
	if r.all()[0].format == protocol.FormatArray {
		return nil
	}
	return r.Numbered()
}

// A publisher announces what was unlinked.
type publisher struct {
	routes *routes
	redis  interface {
		Publish(ctx context.Context, channel string, f protocol.Format, news keyspace.News) (keyspace.Published, error)
	}
}

// publish announces news on all current routes, after the keys were unlinked. A reader that
// switches channels empties its cache, and keys that are announced only on the old channel were
// unlinked before the worker announced the move. It returns how many messages were published, their
// numbers, and the least number of receivers of a message, on all routes together; -1 means
// unknown.
func (p *publisher) publish(ctx context.Context, news keyspace.News) (done keyspace.Published, err error) {
	for _, r := range p.routes.all() {
		n, err := p.redis.Publish(ctx, r.channel, r.format, news)
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
