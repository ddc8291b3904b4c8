package worker

import (
	"context"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/store"
)

const (
	sweepNoteInterval = time.Second      // between two looks at the lead, and two notes for "unstale status"
	sweepLogInterval  = 10 * time.Second // between two lines in the log
)

// A sweepWatch looks after sweeps under way: it tells how far they are, once a second in MySQL and every ten seconds in the
// log, so that short ones say nothing; and it gives all up when the lead is lost, since another worker has it then, or when
// an operator pauses the workers. Safe for concurrent use.
type sweepWatch struct {
	worker *engine
	lead   *store.Lead
	ctx    context.Context // of the sweeps
	cancel context.CancelCauseFunc
	stop   chan struct{}
	group  sync.WaitGroup

	mu   sync.Mutex
	ways map[store.SweepKind]*sweepWay
}

// A sweepWay is how far the sweeps of one kind are.
type sweepWay struct {
	pass   store.SweepPass
	began  time.Time
	under  bool // way: otherwise there is none of the kind
	noted  bool // MySQL has heard of it
	logged bool // the log has

	// Of sets:
	counts   setCounts
	arriving bool // requests are
	large    int  // sets in hand
}

// watchSweep begins to look after sweeps, which are to use the watch's context, until end is called.
func (w *engine) watchSweep(ctx context.Context, lead *store.Lead) *sweepWatch {
	s := &sweepWatch{worker: w, lead: lead, stop: make(chan struct{}), ways: map[store.SweepKind]*sweepWay{
		store.SweepPattern: {}, store.SweepSet: {},
	}}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.group.Go(s.run)
	return s
}

// begin notes that sweeps of a kind begin.
func (s *sweepWatch) begin(p store.SweepPass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	way := s.ways[p.Kind]
	*way = sweepWay{pass: p, began: time.Now(), under: true, noted: way.noted}
}

// beginSets notes that a batch of sets begins, the first one or another.
func (s *sweepWatch) beginSets() {
	s.mu.Lock()
	under := s.ways[store.SweepSet].under
	s.mu.Unlock()
	if !under {
		s.begin(store.SweepPass{Kind: store.SweepSet})
	}
}

// setsInHand notes how many large sets are in hand. Nobody knows how long they take.
func (s *sweepWatch) setsInHand(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ways[store.SweepSet].large = n
}

// note takes in how far sweeps of a kind are.
func (s *sweepWatch) note(kind store.SweepKind, change func(*store.SweepPass)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.ways[kind].pass)
}

// over notes that sweeps of a kind have come to their end.
func (s *sweepWatch) over(kind store.SweepKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	way := s.ways[kind]
	if way.under && way.logged {
		s.worker.log.Info("swept", append(attributes(way.pass), "took", time.Since(way.began).Round(time.Millisecond).String())...)
	}
	way.under = false
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
	for said := time.Now(); ; {
		select {
		case <-s.stop:
			for kind := range s.ways {
				s.over(kind)
				s.tell(kind, false)
			}
			return
		case <-ticker.C:
		}
		if s.worker.resting.Load() {
			s.cancel(errPaused)
		} else if err := s.lead.Held(s.ctx); err != nil {
			s.cancel(err)
		}
		if s.ctx.Err() != nil {
			continue
		}
		aloud := time.Since(said) >= sweepLogInterval
		if aloud {
			said = time.Now()
		}
		s.countSets()
		for kind := range s.ways {
			s.tell(kind, aloud)
		}
	}
}

// tell tells MySQL how far sweeps of a kind are, or that none is under way any more, also when the worker is being stopped;
// and the log, if aloud. Progress that can't be told is no reason to stop.
func (s *sweepWatch) tell(kind store.SweepKind, aloud bool) {
	s.mu.Lock()
	way := s.ways[kind]
	pass, under, noted := way.pass, way.under, way.noted
	pass.ForMicros = time.Since(way.began).Microseconds()
	pass.Unsure = way.arriving || way.large > 0
	way.noted, way.logged = under, way.logged || under && aloud
	s.mu.Unlock()
	var err error
	switch {
	case under:
		err = s.worker.store.NotePass(s.ctx, pass)
	case noted:
		err = s.worker.store.PassOver(context.WithoutCancel(s.ctx), kind)
	}
	if err != nil {
		s.worker.log.Debug("cannot note the progress of a sweep", "error", err)
	}
	if under && aloud {
		out := attributes(pass)
		if left, ok := pass.Left(); ok {
			out = append(out, "left", left.Round(time.Second).String())
		}
		s.worker.log.Info("sweeping", out...)
	}
}

func attributes(p store.SweepPass) []any {
	if p.Kind == store.SweepSet {
		return []any{"sets", p.Scanned, "of", p.Total, "unlinked", p.Unlinked}
	}
	return []any{"patterns", p.Patterns, "scanned", p.Scanned, "of", p.Total, "unlinked", p.Unlinked}
}
