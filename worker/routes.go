package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
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
	redis publishPort
	log   *slog.Logger

	mu      sync.Mutex
	list    []store.Channel // the channel of the current map first
	others  []store.WorkerNote
	agreed  time.Time            // before the last exchange of records
	refused map[string]time.Time // when Redis last refused an adopted channel
}

// set records a newly loaded map.
func (r *routes) set(m *invalidation.Map) {
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
	if err == nil || !c.Adopted || maintenance.State(err) != "redis "+keyspace.StateNoPerm {
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

// numbered implements maintenance.HeartbeatConfig.Channels: messages of the array format have no numbers.
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

// A publisher announces what was unlinked.
type publisher struct {
	routes *routes
	redis  publishPort
	agree  func(context.Context) error // see presence
}

// publish announces news on all current routes, after the keys were unlinked. On a channel that is
// not among them, no in-process cache has held a value from before the UNLINK:
//
//   - A reader that switches channels empties its cache.
//   - While agree is younger than agreedLife, this worker counts as living, so no worker sends
//     heartbeats on a channel that is not in this worker's record.
//
// It returns how many messages were published, their numbers, and the least number of receivers of
// a message, on all routes together; -1 means unknown.
func (p *publisher) publish(ctx context.Context, news keyspace.News) (done keyspace.Published, err error) {
	if err := p.agree(ctx); err != nil {
		return keyspace.Published{Receivers: -1}, err
	}
	for _, r := range p.routes.all() {
		n, err := p.redis.Publish(ctx, r.Name, protocol.Format(r.Format), news)
		if p.routes.refuse(r, err) {
			return p.publish(ctx, news) // after another exchange
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

// A settleLease is the longest lease that a reader may hold, according to this process. Readers
// take leases as long as the latest announcement allows. So a longer lease counts until a shorter
// one is announced, and then until it has ended. Safe for concurrent use.
type settleLease struct {
	mu      sync.Mutex
	lease   time.Duration // of the current map
	hash    time.Duration // that readers find in protocol.AliveKey; zero: none
	beats   time.Duration // and in heartbeats
	since   time.Time     // when both first had a lease of this worker; zero: not yet
	earlier []earlierLease
}

// unannounced is a medium's lease before the first announcement.
const unannounced time.Duration = math.MaxInt64

// An earlierLease is longer than the lease of the current map.
type earlierLease struct {
	lease time.Duration
	until time.Time // zero: no shorter one is announced yet
}

// set records the lease of a newly loaded map.
func (l *settleLease) set(lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == 0 {
		l.hash, l.beats = unannounced, unannounced
	}
	if l.lease > lease {
		l.earlier = append(l.earlier, earlierLease{lease: l.lease})
	}
	l.lease = lease
}

// announced records which lease a medium, hash or beats, has, and which one it had before.
func (l *settleLease) announced(medium *time.Duration, lease, before time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before > l.lease { // of another worker, which announced it in both
		l.earlier, l.hash, l.beats = append(l.earlier, earlierLease{lease: before}), before, before
	}
	*medium = lease
	now, longest := time.Now(), max(l.hash, l.beats)
	if l.since.IsZero() && longest < unannounced {
		l.since = now
	}
	for i := range l.earlier {
		if e := &l.earlier[i]; e.until.IsZero() && longest < e.lease {
			e.until = now.Add(e.lease)
		}
	}
}

// forHeartbeats returns the lease that heartbeats announce: the lease of the map, or a shorter one
// of another worker, as in the hash. Workers of an earlier release do not wait for a longer one.
func (l *settleLease) forHeartbeats() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hash > 0 {
		return min(l.lease, l.hash)
	}
	return l.lease
}

// now returns the longest lease that a reader may hold, and for how long the worker has announced a
// lease; zero: not yet.
func (l *settleLease) now() (longest, announced time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, longest, kept := time.Now(), l.lease, l.earlier[:0]
	for _, e := range l.earlier {
		if e.until.IsZero() || now.Before(e.until) {
			longest, kept = max(longest, e.lease), append(kept, e)
		}
	}
	l.earlier = kept
	if !l.since.IsZero() {
		announced = now.Sub(l.since)
	}
	return longest, announced
}
