package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/keyspace"
	"github.com/unstale/unstale/outbox"
)

const (
	sweepNoteInterval = time.Second      // between two notes for "unstale status"
	sweepLogInterval  = 10 * time.Second // between two lines in the log
)

// watchedSweep makes a pass over the keyspace and tells how far it is: once a second in MySQL, every ten seconds in the
// log, so that a short pass says nothing. It gives the pass up when the lead is lost, since another worker has it then.
func (w *Worker) watchedSweep(ctx context.Context, lead *outbox.Lead, patterns []string) (keyspace.SweepResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := sweepWatch{worker: w, patterns: len(patterns), began: time.Now()}
	over := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { watch.run(ctx, lead, over, cancel) })
	result, err := w.redis.Sweep(ctx, patterns, func(p keyspace.Progress) { watch.now.Store(&p) })
	close(over)
	group.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	if err == nil && watch.logged {
		w.log.Info("swept", "patterns", len(patterns), "scanned", result.Scanned, "unlinked", result.Unlinked,
			"took", time.Since(watch.began).Round(time.Millisecond).String())
	}
	return result, err
}

// A sweepWatch tells of one pass.
type sweepWatch struct {
	worker   *Worker
	patterns int
	began    time.Time
	now      atomic.Pointer[keyspace.Progress]

	noted, logged bool // owned by run until it has returned
}

func (s *sweepWatch) run(ctx context.Context, lead *outbox.Lead, over <-chan struct{}, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(sweepNoteInterval)
	defer ticker.Stop()
	for said := s.began; ; {
		select {
		case <-over:
			s.end(ctx)
			return
		case <-ticker.C:
		}
		if err := lead.Held(ctx); err != nil {
			cancel(err)
			continue
		}
		p := s.now.Load()
		if p == nil {
			continue
		}
		s.note(ctx, p)
		if time.Since(said) >= sweepLogInterval {
			said, s.logged = time.Now(), true
			s.worker.log.Info("sweeping", append([]any{"patterns", s.patterns}, s.attributes(p)...)...)
		}
	}
}

// note tells MySQL. Progress that can't be told is no reason to stop.
func (s *sweepWatch) note(ctx context.Context, p *keyspace.Progress) {
	s.noted = true
	if err := s.worker.store.NotePass(ctx, s.pass(p)); err != nil {
		s.worker.log.Debug("cannot note the progress of a sweep", "error", err)
	}
}

func (s *sweepWatch) pass(p *keyspace.Progress) outbox.SweepPass {
	return outbox.SweepPass{
		Patterns: s.patterns, Scanned: p.Scanned, Total: p.Total, Unlinked: p.Unlinked, ForMicros: time.Since(s.began).Microseconds(),
	}
}

func (s *sweepWatch) attributes(p *keyspace.Progress) []any {
	out := []any{"scanned", p.Scanned, "of", p.Total, "unlinked", p.Unlinked}
	if pass := s.pass(p); p.Total > 0 {
		if left, ok := pass.Left(); ok {
			out = append(out, slog.String("left", left.Round(time.Second).String()))
		}
	}
	return out
}

// end notes that the pass is over, also when the worker is being stopped.
func (s *sweepWatch) end(ctx context.Context) {
	if !s.noted {
		return
	}
	if err := s.worker.store.PassOver(context.WithoutCancel(ctx)); err != nil {
		s.worker.log.Debug("cannot note the end of a sweep", "error", err)
	}
}
