package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

const (
	// agreedLife is how long the channels of the other workers count after they were read. A worker
	// without a new record counts as gone later.
	agreedLife = 5 * time.Second
	// adoptedLife is the age of a record up to which other workers publish on its channels.
	// Heartbeats end ten seconds earlier, so readers close before the messages end.
	adoptedLife = 20 * time.Second
	array       = string(protocol.FormatArray)
)

// routes are the channels of a worker, each in one format:
//
//   - the channel of its map and, if reloads have changed it, the channels of the earlier maps,
//     until the worker is restarted;
//   - the adopted ones: those of the maps of the other workers.
//
// Subscribers of each of them receive everything. Safe for concurrent use.
type routes struct {
	redis maintenance.Redis
	log   *slog.Logger

	mu      sync.Mutex
	list    []store.Channel // the channel of the current map first
	others  []store.WorkerNote
	agreed  time.Time            // before the last exchange of records
	refused map[string]time.Time // when Redis last refused an adopted channel
}

// attach tells the port of a worker, whose routes they are.
func (r *routes) attach(redis maintenance.Redis, log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.redis, r.log, r.refused = redis, log, map[string]time.Time{}
}

// setMap records a newly loaded map.
func (r *routes) setMap(m *invalidation.Map) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append([]store.Channel{{Name: m.Channel(), Format: string(m.Format())}},
		slices.DeleteFunc(slices.Clone(r.list), func(c store.Channel) bool { return c.Name == m.Channel() })...)
	r.adopt()
}

// adopt replaces the adopted routes. The caller holds mu.
func (r *routes) adopt() {
	r.list = slices.DeleteFunc(slices.Clone(r.list), func(c store.Channel) bool { return c.Adopted })
	for _, left := range []bool{false, true} {
		for _, w := range r.others {
			for _, c := range w.Channels {
				if w.Lives() != left && !c.Adopted && !slices.ContainsFunc(r.list, c.Is) && time.Since(r.refused[c.Name]) > deniedPause {
					c.Adopted, c.Left = true, left
					r.list = append(r.list, c)
				}
			}
		}
	}
}

// join adopts the channels of the other workers, and tests whether Redis accepts messages there.
func (r *routes) join(ctx context.Context, self string, workers []store.WorkerNote) error {
	workers = slices.DeleteFunc(workers, func(w store.WorkerNote) bool { return w.ID == self || w.Silent.Abs() > adoptedLife })
	slices.SortFunc(workers, func(a, b store.WorkerNote) int { return cmp.Compare(a.ID, b.ID) })
	r.mu.Lock()
	r.others = workers
	r.adopt()
	r.mu.Unlock()
	list := r.all()
	for _, c := range list {
		if c.Adopted && c.Format != array {
			err := r.redis.Beat(ctx, c.Name, list[0].Name, cmp.Or(r.withheld(c), "a worker adopts this channel"), time.Now())
			if err != nil && !r.refuse(c, err) {
				return fmt.Errorf("publish on the channel of another worker: %w", err)
			}
		}
	}
	return nil
}

// refuse leaves an adopted route for a minute if err means that the account may not publish there,
// and reports whether it does.
func (r *routes) refuse(c store.Channel, err error) bool {
	if err == nil || !c.Adopted || !keyspace.IsDenied(err) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused[c.Name].IsZero() {
		r.log.Warn("redis refuses the channel of another worker; retrying every minute", "channel", c.Name, "error", err,
			"effect", "heartbeats are withheld there", "cure", "ACL SETUSER the worker's user with &"+c.Name)
	}
	r.refused[c.Name], r.agreed = time.Now(), time.Time{}
	r.adopt()
	return true
}

// all lists the routes.
func (r *routes) all() []store.Channel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}

// recorded lists what the record has. After an exchange that is too old, adopted routes are not in
// it: the next one may drop them.
func (r *routes) recorded() []store.Channel {
	fresh := r.fresh()
	return slices.DeleteFunc(slices.Clone(r.all()), func(c store.Channel) bool { return c.Adopted && !fresh })
}

// fresh reports whether the records of the workers were exchanged lately.
func (r *routes) fresh() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.agreed) < agreedLife
}

// numbered lists the channels of which messages have numbers, which those of the array format do not.
func (r *routes) numbered() (channels []maintenance.HeartbeatChannel) {
	list := r.all()
	for _, c := range list {
		if c.Format != array {
			to := maintenance.HeartbeatChannel{Name: c.Name, Withheld: r.withheld(c)}
			if c.Name != list[0].Name {
				to.Moved = list[0].Name
			}
			channels = append(channels, to)
		}
	}
	return channels
}

// withheld returns why a route takes no heartbeats, or "".
func (r *routes) withheld(c store.Channel) string {
	if !r.fresh() {
		return "a worker has not exchanged its channels with the other workers"
	}
	if c.Left {
		return "no living worker has a map with this channel"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.others {
		if w.Lives() && !slices.ContainsFunc(w.Channels, func(o store.Channel) bool { return o.Is(c) && !o.Left }) {
			return fmt.Sprintf("worker %q publishes only on %q (format %s)", w.Name, w.Channel, w.Format)
		}
	}
	return ""
}

// A publisher announces what was unlinked. It implements maintenance.Channels.
type publisher struct {
	*routes
	presence *presence
}

// Numbered implements maintenance.Channels.
func (p *publisher) Numbered() []maintenance.HeartbeatChannel { return p.numbered() }

// Publish announces news on all current routes, after the keys were unlinked. On a channel that is
// not among them, no in-process cache has held a value from before the UNLINK:
//
//   - A reader that switches channels empties its cache.
//   - While agree is younger than agreedLife, this worker counts as living, so no worker sends
//     heartbeats on a channel that is not in this worker's record.
//
// It returns how many messages were published, their numbers, and the least number of receivers of
// a message, on all routes together; -1 means unknown.
func (p *publisher) Publish(ctx context.Context, news keyspace.News) (done keyspace.Published, err error) {
	if err := p.presence.agree(ctx); err != nil {
		return keyspace.Published{Receivers: -1}, err
	}
	for _, r := range p.all() {
		n, err := p.redis.Publish(ctx, r.Name, protocol.Format(r.Format), news)
		if p.refuse(r, err) {
			return p.Publish(ctx, news) // after another exchange
		}
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
