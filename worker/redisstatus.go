package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/status"
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
	record *record
	source *maintenance.HeartbeatSource
	maps   *mapFile
	epoch  func(channel string) string
	log    *slog.Logger
	board  *keyspace.Board // nil where the worker publishes no state

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

// run publishes once per second until ctx ends, and then that the worker has stopped. A
// failure harms no row: the loop reports outages, and the log reports missing ACL permissions once.
func (s *redisStatus) run(ctx context.Context) {
	if s.board == nil {
		s.maps.lease.announced(&s.maps.lease.hash, 0, 0)
		return
	}
	s.alive.effect, s.status.effect = "readers cannot detect a wrong server or database", "status depends on mysql alone"
	ticker := time.NewTicker(alivePeriod)
	defer ticker.Stop()
	for {
		s.publish(ctx)
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordLimit)
			defer cancel()
			// silence tells, too
			_ = status.PostWorker(ctx, s.board, s.source.Get(), s.note(s.record.stopped()))
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
		s.log.Info("worker state is published in redis again", "ended", r.effect)
	case errors.As(err, &outage) && outage.State == keyspace.StateNoPerm:
		r.denied = time.Now()
		if r == &s.alive {
			s.maps.lease.announced(&s.maps.lease.hash, 0, 0) // readers find none there
		}
		if !r.told {
			r.told = true
			s.log.Warn("cannot publish worker state in redis; retrying every minute", "error", err, "effect", r.effect,
				"cure", "ACL SETUSER the worker's user with "+keyspace.BoardRules)
		}
	case err != nil:
		s.log.Debug("cannot publish worker state in redis", "error", err, "effect", r.effect)
	}
}

func (s *redisStatus) tellAlive(ctx context.Context) error {
	m, source := s.maps.Map(), s.source.Get()
	if source == "" { // MySQL has not told it
		return nil
	}
	has, had, err := s.board.Alive(ctx, source, protocol.Alive{Epoch: s.epoch(m.Channel()), Lease: m.Lease().Milliseconds(), Map: m.Version()})
	if err != nil {
		has = unannounced
	}
	s.maps.lease.announced(&s.maps.lease.hash, has, had)
	return err
}

func (s *redisStatus) tellStatus(ctx context.Context) error {
	err := status.PostWorker(ctx, s.board, s.source.Get(), s.note(s.record.now()))
	if err == nil && time.Since(s.forgot) > forgetPeriod {
		s.forgot = time.Now()
		err = status.ForgetWorkers(ctx, s.board)
	}
	return err
}

// note completes what the worker is at.
func (s *redisStatus) note(n store.WorkerNote) store.WorkerNote {
	if n.State != s.state {
		s.state, s.since = n.State, time.Now()
	}
	return s.record.complete(n, s.since)
}
