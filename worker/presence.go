package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

const (
	// presencePeriod is how often a worker writes its status record, and presenceLook how often it
	// checks for a change, which it writes immediately.
	presencePeriod = 2 * time.Second
	presenceLook   = 100 * time.Millisecond
	// lastWordLimit bounds the write of the final status record.
	lastWordLimit = 500 * time.Millisecond
)

// A presence writes the status record of a worker to MySQL, and reads those of the other workers,
// for routes. Safe for concurrent use.
type presence struct {
	*record

	mu       sync.Mutex // guards the rest
	recorded bool       // writeRecords writes the record; otherwise the worker has none

	last    store.WorkerNote // as noted, whether or not it arrived
	noted   time.Time
	since   time.Time // of the state
	refused bool      // MySQL refuses the notes, and the log has said so
}

// writeRecords writes the status record until ctx ends, for `unstale status`. It is a separate
// goroutine, to report an outage of Redis or a stuck loop as well. A failed write is harmless: a
// worker without a recent record counts as gone.
func (p *presence) writeRecords(ctx context.Context) {
	sleep.Every(ctx, presenceLook, func(ctx context.Context) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.recorded = true
		if now := p.record.now(); time.Since(p.noted) >= presencePeriod || isNews(p.last, now) {
			_ = p.exchange(ctx, now) // tried again
		}
	})
}

// isNews reports whether a note says another thing than the last one. The words of an error may
// differ each time. That heavy rows are done can wait.
func isNews(last, now store.WorkerNote) bool {
	return now.Stalled != last.Stalled || !slices.Equal(now.Channels, last.Channels) || now.Heavy != nil && last.Heavy == nil ||
		now.State != last.State || now.MapError != last.MapError || now.MapWarning != last.MapWarning || now.MapVersion != last.MapVersion || (now.Error == "") != (last.Error == "")
}

// stopped writes that the worker has stopped cleanly.
func (p *presence) stopped(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordLimit)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.writeRecord(ctx, p.record.stopped()) // silence shows it too
	p.recorded = false
}

// agree exchanges the records if the last exchange is too old, for example because the process was
// frozen. Call it between an UNLINK and its message. A worker without a record reads the others
// each time. A missing privilege is not an error: rows do not wait for it.
func (p *presence) agree(ctx context.Context) error {
	if p.maps.routes.fresh() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.exchange(ctx, p.record.now()); !session.IsRefusal(err) {
		return err
	}
	return nil
}

// exchange writes the record and then reads those of the others, in this order: of two workers that
// start together, at least one sees the other before it publishes. The caller holds mu.
func (p *presence) exchange(ctx context.Context, n store.WorkerNote) error {
	began, err := time.Now(), p.writeRecord(ctx, n)
	if err == nil || session.IsRefusal(err) {
		workers, unread := p.Store.Workers.Workers(ctx)
		if err = errors.Join(unread, err); unread == nil {
			err = errors.Join(p.maps.routes.join(ctx, p.Store.ID, workers), err)
		}
	}
	if err == nil && p.recorded {
		p.maps.routes.mu.Lock()
		p.maps.routes.agreed = began
		p.maps.routes.mu.Unlock()
	}
	return err
}

// writeRecord writes the record, if the worker has one. It logs once that MySQL refuses it.
func (p *presence) writeRecord(ctx context.Context, n store.WorkerNote) error {
	if !p.recorded {
		return nil
	}
	p.noted = time.Now()
	if n.State != p.last.State {
		p.since = p.noted
	}
	p.last = n
	err := p.Store.Workers.NoteWorker(ctx, p.record.complete(n, p.since))
	switch {
	case err == nil:
		p.refused = false
	case session.IsRefusal(err) && !p.refused && ctx.Err() == nil:
		p.refused = true
		cure := session.Fix(err)
		if session.MissingGrant(err) != "" {
			cure = "GRANT SELECT, INSERT, DELETE ON cache_outbox_workers to the worker's account; docs/accounts.md lists the grants"
		}
		p.Log.Warn("this worker cannot note what it is at, so that `unstale status` does not know of it, and heartbeats are withheld; trying again", "error", err, "cure", cure)
	}
	return err
}

// A record makes the status record of the worker, for MySQL and for Redis. Safe for concurrent use.
type record struct {
	*base
	deprecated *deprecated
	heavy      *heavyRows
	spots      *spotMetrics
}

// now returns what the worker is at.
func (r *record) now() store.WorkerNote {
	n := r.State.Note()
	if n.State == store.WorkerWorking && n.Error == "" {
		if err := r.Store.Minutes.Refused(); err != nil {
			n.Error = store.NotCounted + err.Error()
		} else if err := r.spots.refused(); err != nil {
			n.Error = store.NotChecked + err.Error()
		}
	}
	if err := r.maps.refusal(); err != nil {
		n.MapError = err.Error()
	}
	m := r.maps.Map()
	n.Channels = r.maps.routes.recorded()
	n.MapVersion, n.Reads, n.MapWarning, n.Heavy = m.Version(), m.Reads().Version(), r.deprecated.warning(), r.heavy.lasts()
	return n
}

// complete adds the fields of a status record that do not depend on its state, which began at
// since.
func (r *record) complete(n store.WorkerNote, since time.Time) store.WorkerNote {
	m := r.maps.Map()
	n.ID, n.Name, n.For, n.Channel, n.Format = r.Store.ID, r.cfg.Name, time.Since(since), m.Channel(), string(m.Format())
	n.Lease, n.Announced = r.Lease.Now()
	if at := r.State.Loop.LastDrained(); !at.IsZero() {
		n.Drained = new(time.Since(at))
	}
	return n
}

// stopped returns the status record of a worker that has stopped cleanly.
func (r *record) stopped() store.WorkerNote {
	return store.WorkerNote{State: store.WorkerStopped, MapVersion: r.maps.Version()}
}

const (
	// alivePeriod is how often a worker publishes in Redis where it writes, and its status.
	alivePeriod = time.Second
	// statusLimit bounds one attempt.
	statusLimit = 3 * time.Second
	// deniedPause is the wait after a denial, each of which is an entry in the ACL log of Redis.
	deniedPause = time.Minute
	// forgetPeriod is how often workers remove the status of those that are gone.
	forgetPeriod = 10 * time.Minute
)

// A redisStatus publishes in Redis where the worker writes, and its status. One goroutine owns it.
// It sends MySQL nothing, so it also reports a MySQL that hangs.
type redisStatus struct {
	*record
	hashes *keyspace.StatusHashes // nil where the worker publishes no state

	state  string // as last published
	since  time.Time
	forgot time.Time

	alive, status denial
}

// A denial records the refusals of Redis for the account of the worker. The account may write one
// hash and not the other, so each has its own.
type denial struct {
	effect string
	denied time.Time // when Redis last refused it
	told   bool      // the log reports it
}

// publishStatus publishes once per second until ctx ends, and then that the worker has stopped. A
// failure harms no row: the loop reports outages, and the log reports missing ACL permissions once.
func (s *redisStatus) publishStatus(ctx context.Context) {
	if s.hashes == nil {
		s.Lease.AnnouncedInHash(0, 0)
		return
	}
	s.alive.effect, s.status.effect = "readers cannot detect a wrong server or database", "status depends on mysql alone"
	sleep.Every(ctx, alivePeriod, s.publish)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordLimit)
	defer cancel()
	// silence tells, too
	_ = status.PostWorker(ctx, s.hashes, s.Source.Get(), s.dated(s.record.stopped()))
}

func (s *redisStatus) publish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	s.try(ctx, &s.alive, s.tellAlive)
	s.try(ctx, &s.status, s.tellStatus)
}

// try calls f, except for a minute after Redis refused it.
func (s *redisStatus) try(ctx context.Context, r *denial, f func(context.Context) error) {
	if time.Since(r.denied) < deniedPause {
		return
	}
	err := f(ctx)
	switch {
	case err == nil && r.told:
		r.told = false
		s.Log.Info("worker state is published in redis again", "ended", r.effect)
	case keyspace.IsDenied(err):
		r.denied = time.Now()
		if r == &s.alive {
			s.Lease.AnnouncedInHash(0, 0) // readers find none there
		}
		if !r.told {
			r.told = true
			s.Log.Warn("cannot publish worker state in redis; retrying every minute", "error", err, "effect", r.effect,
				"cure", "ACL SETUSER the worker's user with "+keyspace.StatusRules)
		}
	case err != nil:
		s.Log.Debug("cannot publish worker state in redis", "error", err, "effect", r.effect)
	}
}

func (s *redisStatus) tellAlive(ctx context.Context) error {
	m, outboxID := s.maps.Map(), s.Source.Get()
	if outboxID == "" { // MySQL has not told it
		return nil
	}
	has, had, err := s.hashes.Alive(ctx, outboxID, protocol.Alive{Epoch: s.Redis.Epoch(m.Channel()), Lease: m.Lease().Milliseconds(), Map: m.Version()})
	if err != nil {
		has = maintenance.Unannounced
	}
	s.Lease.AnnouncedInHash(has, had)
	return err
}

func (s *redisStatus) tellStatus(ctx context.Context) error {
	err := status.PostWorker(ctx, s.hashes, s.Source.Get(), s.dated(s.record.now()))
	if err == nil && time.Since(s.forgot) > forgetPeriod {
		s.forgot = time.Now()
		err = status.ForgetWorkers(ctx, s.hashes)
	}
	return err
}

// dated completes a record, with the time since its state began.
func (s *redisStatus) dated(n store.WorkerNote) store.WorkerNote {
	if n.State != s.state {
		s.state, s.since = n.State, time.Now()
	}
	return s.record.complete(n, s.since)
}
