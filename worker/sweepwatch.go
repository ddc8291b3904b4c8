package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/keyspace"
	"github.com/unstale/unstale/outbox"
)

const (
	sweepNoteInterval = time.Second      // between two looks at the lead, and two notes for "unstale status"
	sweepLogInterval  = 10 * time.Second // between two lines in the log
)

// A sweepWatch looks after sweeps under way: it tells how far a pass over the keyspace is, once a second in MySQL and every
// ten seconds in the log, so that a short one says nothing; and it gives all up when the lead is lost, since another worker
// has it then, or when an operator pauses the workers.
type sweepWatch struct {
	worker *Worker
	lead   *outbox.Lead
	ctx    context.Context // of the sweeps
	cancel context.CancelCauseFunc
	stop   chan struct{}
	group  sync.WaitGroup

	pass   atomic.Pointer[outbox.SweepPass] // as of the last news; nil outside of a pass
	began  atomic.Pointer[time.Time]        // the pass
	logged atomic.Bool                      // the log has heard of it
}

// watchSweep begins to look after sweeps, which are to use the watch's context, until end is called.
func (w *Worker) watchSweep(ctx context.Context, lead *outbox.Lead) *sweepWatch {
	s := &sweepWatch{worker: w, lead: lead, stop: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.group.Go(s.run)
	return s
}

// begin notes that a pass for so many patterns begins.
func (s *sweepWatch) begin(patterns int) {
	now := time.Now()
	s.began.Store(&now)
	s.pass.Store(&outbox.SweepPass{Patterns: patterns})
}

// note takes in how far the pass is.
func (s *sweepWatch) note(p keyspace.Progress) {
	s.pass.Store(&outbox.SweepPass{
		Patterns: s.pass.Load().Patterns, Scanned: p.Scanned, Total: p.Total, Unlinked: p.Unlinked,
		ForMicros: time.Since(*s.began.Load()).Microseconds(),
	})
}

// over notes that the pass has come to its end.
func (s *sweepWatch) over(r keyspace.SweepResult) {
	if s.logged.Load() {
		s.worker.log.Info("swept", "patterns", len(r.Patterns), "scanned", r.Scanned, "unlinked", r.Unlinked,
			"took", time.Since(*s.began.Load()).Round(time.Millisecond).String())
	}
}

// end ends the watch and returns why it gave the sweeps up, if it did.
func (s *sweepWatch) end() error {
	close(s.stop)
	s.group.Wait()
	var cause error
	if s.ctx.Err() != nil {
		cause = context.Cause(s.ctx)
	}
	s.cancel(nil)
	return cause
}

func (s *sweepWatch) run() {
	ticker := time.NewTicker(sweepNoteInterval)
	defer ticker.Stop()
	noted := false
	for said := time.Now(); ; {
		select {
		case <-s.stop:
			if noted {
				s.forget()
			}
			return
		case <-ticker.C:
		}
		if s.worker.resting.Load() {
			s.cancel(errPaused)
		} else if err := s.lead.Held(s.ctx); err != nil {
			s.cancel(err)
		}
		p := s.pass.Load()
		if p == nil || s.ctx.Err() != nil {
			continue
		}
		noted = true
		s.tell(p)
		if time.Since(said) >= sweepLogInterval {
			said = time.Now()
			s.logged.Store(true)
			s.worker.log.Info("sweeping", attributes(p)...)
		}
	}
}

// tell tells MySQL. Progress that can't be told is no reason to stop.
func (s *sweepWatch) tell(p *outbox.SweepPass) {
	if err := s.worker.store.NotePass(s.ctx, *p); err != nil {
		s.worker.log.Debug("cannot note the progress of a sweep", "error", err)
	}
}

// forget notes that no pass is under way, also when the worker is being stopped.
func (s *sweepWatch) forget() {
	if err := s.worker.store.PassOver(context.WithoutCancel(s.ctx)); err != nil {
		s.worker.log.Debug("cannot note the end of a sweep", "error", err)
	}
}

func attributes(p *outbox.SweepPass) []any {
	out := []any{"patterns", p.Patterns, "scanned", p.Scanned, "of", p.Total, "unlinked", p.Unlinked}
	if left, ok := p.Left(); ok {
		out = append(out, "left", left.Round(time.Second).String())
	}
	return out
}
