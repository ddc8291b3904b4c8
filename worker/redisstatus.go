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
	// deniedPause is the wait after a refusal, each of which is an entry in the ACL log of Redis.
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
	denied time.Time // when Redis last refused it
	told   bool      // the log reports the refusal
}

// tellRedis publishes once per second until ctx ends, and then that the worker has stopped. A
// failure harms no row: the loop reports outages, and the log reports missing ACL permissions once.
func (w *engine) tellRedis(ctx context.Context) {
	if w.board == nil {
		return
	}
	s := &redisStatus{w: w, board: w.board}
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
	if time.Since(s.denied) < deniedPause {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, boardLimit)
	defer cancel()
	err := s.attempt(ctx)
	var outage *keyspace.Outage
	switch {
	case err == nil && s.told:
		s.told = false
		s.w.log.Info("worker state is published in redis again")
	case errors.As(err, &outage) && outage.State == keyspace.StateNoPerm:
		s.denied = time.Now()
		if !s.told {
			s.told = true
			s.w.log.Warn("cannot publish worker state in redis; retrying every minute", "error", err,
				"effect", "readers cannot detect a wrong server or database, and status depends on mysql alone",
				"cure", "ACL SETUSER the worker's user with "+keyspace.BoardRules)
		}
	case err != nil:
		s.w.log.Debug("cannot publish worker state in redis", "error", err)
	}
}

func (s *redisStatus) attempt(ctx context.Context) error {
	w, m := s.w, s.w.maps.Map()
	source := w.source.get()
	var err error
	if source != "" { // MySQL has told it
		err = s.board.Alive(ctx, source, protocol.Alive{Epoch: w.redis.Epoch(m.Channel()), Lease: m.Lease().Milliseconds(), Map: m.Version()})
	}
	if also := registry.PostWorker(ctx, s.board, source, s.note(w.presenceNow())); err == nil {
		err = also
	}
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
