package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/registry"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
)

const (
	// alivePeriod is how often a worker publishes in Redis where it writes, and its status.
	alivePeriod = time.Second
	// boardLimit bounds one attempt.
	boardLimit = 3 * time.Second
	// deniedPause is the wait after a denial, each of which is an entry in the ACL log of Redis.
	deniedPause = time.Minute
	// forgetPeriod is how often workers remove the status of those that are gone.
	forgetPeriod = 10 * time.Minute
)

// A redisStatus publishes in Redis where the worker writes, and its status. One goroutine owns it.
// It sends MySQL nothing, so it also reports a MySQL that hangs.
type redisStatus struct {
	w     *engine
	board *keyspace.Board

	state  string // as last published
	since  time.Time
	forgot time.Time

	alive, status denial
}

// A denial is what Redis denies the worker's account. Its account may write one hash and not the
// other, so each has its own.
type denial struct {
	effect string
	denied time.Time // when Redis last refused it
	told   bool      // the log reports it
}

// tellRedis publishes once per second until ctx ends, and then that the worker has stopped. A
// failure harms no row: the loop reports outages, and the log reports missing ACL permissions once.
func (w *engine) tellRedis(ctx context.Context) {
	if w.board == nil {
		return
	}
	s := &redisStatus{
		w: w, board: w.board,
		alive:  denial{effect: "readers cannot detect a wrong server or database"},
		status: denial{effect: "status depends on mysql alone"},
	}
	ticker := time.NewTicker(alivePeriod)
	defer ticker.Stop()
	for {
		s.publish(ctx)
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordLimit)
			defer cancel()
			n := store.WorkerNote{State: store.WorkerStopped, MapVersion: w.maps.Map().Version()}
			_ = registry.PostWorker(ctx, s.board, w.source.get(), s.note(n)) // silence tells, too
			return
		case <-ticker.C:
		}
	}
}

func (s *redisStatus) publish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, boardLimit)
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
	var outage *keyspace.Outage
	switch {
	case err == nil && r.told:
		r.told = false
		s.w.log.Info("worker state is published in redis again", "ended", r.effect)
	case errors.As(err, &outage) && outage.State == keyspace.StateNoPerm:
		r.denied = time.Now()
		if !r.told {
			r.told = true
			s.w.log.Warn("cannot publish worker state in redis; retrying every minute", "error", err, "effect", r.effect,
				"cure", "ACL SETUSER the worker's user with "+keyspace.BoardRules)
		}
	case err != nil:
		s.w.log.Debug("cannot publish worker state in redis", "error", err, "effect", r.effect)
	}
}

func (s *redisStatus) tellAlive(ctx context.Context) error {
	w, m := s.w, s.w.maps.Map()
	source := w.source.get()
	if source == "" { // MySQL has not told it
		return nil
	}
	return s.board.Alive(ctx, source, protocol.Alive{Epoch: w.redis.Epoch(m.Channel()), Lease: m.Lease().Milliseconds(), Map: m.Version()})
}

func (s *redisStatus) tellStatus(ctx context.Context) error {
	err := registry.PostWorker(ctx, s.board, s.w.source.get(), s.note(s.w.presenceNow()))
	if err == nil && time.Since(s.forgot) > forgetPeriod {
		s.forgot = time.Now()
		err = registry.ForgetWorkers(ctx, s.board)
	}
	return err
}

// note completes what the worker is at.
func (s *redisStatus) note(n store.WorkerNote) store.WorkerNote {
	if n.State != s.state {
		s.state, s.since = n.State, time.Now()
	}
	return s.w.complete(n, s.since)
}

// A sourceID is the ID of the outbox. Safe for concurrent use.
type sourceID struct{ id atomic.Pointer[string] }

// get returns the ID, empty until MySQL has told it.
func (s *sourceID) get() string {
	if id := s.id.Load(); id != nil {
		return *id
	}
	return ""
}

func (s *sourceID) set(id string) { s.id.Store(&id) }
