package worker

import (
	"context"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/store"
)

const (
	sweepNoteInterval = time.Second      // between two checks of the sweep lock, and two notes for "unstale status"
	sweepLogInterval  = 10 * time.Second // between two lines in the log
)

// A sweepWatch looks after sweeps under way: it tells how far they are, once a second in MySQL and every ten seconds in
// the log, so that short ones say nothing; and it gives all up when the sweep lock is lost, since another worker has it
// then, or when an operator pauses the workers. Safe for concurrent use.
type sweepWatch struct {
	worker *engine
	lock   *store.SweepLock
	ctx    context.Context // of the sweeps
	cancel context.CancelCauseFunc
	stop   chan struct{}
	group  sync.WaitGroup

	mu     sync.Mutex
	states map[store.SweepKind]*sweepState
}

// A sweepState is how far the sweeps of one kind are.
type sweepState struct {
	progress store.SweepProgress
	began    time.Time
	running  bool // otherwise there is none of the kind
	noted    bool // MySQL has heard of it
	logged   bool // the log has

	// Of sets:
	counts   setCounts
	arriving bool // requests are
	large    int  // sets in hand
}

// watchSweep begins to look after sweeps, which are to use the watch's context, until end is called.
func (w *engine) watchSweep(ctx context.Context, lock *store.SweepLock) *sweepWatch {
	s := &sweepWatch{worker: w, lock: lock, stop: make(chan struct{}), states: map[store.SweepKind]*sweepState{
		store.SweepPattern: {}, store.SweepSet: {},
	}}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.group.Go(s.run)
	return s
}

// begin notes that sweeps of a kind begin.
func (s *sweepWatch) begin(p store.SweepProgress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[p.Kind]
	*state = sweepState{progress: p, began: time.Now(), running: true, noted: state.noted}
}

// beginSets notes that a batch of sets begins, the first one or another.
func (s *sweepWatch) beginSets() {
	s.mu.Lock()
	under := s.states[store.SweepSet].running
	s.mu.Unlock()
	if !under {
		s.begin(store.SweepProgress{Kind: store.SweepSet})
	}
}

// setsInHand notes how many large sets are in hand. Nobody knows how long they take.
func (s *sweepWatch) setsInHand(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[store.SweepSet].large = n
}

// note records how far sweeps of a kind are.
func (s *sweepWatch) note(kind store.SweepKind, change func(*store.SweepProgress)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.states[kind].progress)
}

// over notes that sweeps of a kind have come to their end.
func (s *sweepWatch) over(kind store.SweepKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[kind]
	if state.running && state.logged {
		s.worker.log.Info("swept", append(attributes(state.progress), "took", time.Since(state.began).Round(time.Millisecond).String())...)
	}
	state.running = false
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
			for kind := range s.states {
				s.over(kind)
				s.tell(kind, false)
			}
			return
		case <-ticker.C:
		}
		if s.worker.paused.Load() {
			s.cancel(errPaused)
		} else if err := s.lock.Check(s.ctx); err != nil {
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
		for kind := range s.states {
			s.tell(kind, aloud)
		}
	}
}

// tell tells MySQL how far sweeps of a kind are, or that none is under way any more, also when the worker is being
// stopped; and the log, if aloud. Progress that cannot be told is not a reason to stop.
func (s *sweepWatch) tell(kind store.SweepKind, aloud bool) {
	s.mu.Lock()
	state := s.states[kind]
	progress, under, noted := state.progress, state.running, state.noted
	if !under {
		s.worker.metrics.sweptSoFar(kind, 0, 0)
	} else {
		s.worker.metrics.sweptSoFar(kind, progress.Scanned, progress.Total)
	}
	progress.ForMicros = time.Since(state.began).Microseconds()
	progress.Unsure = state.arriving || state.large > 0
	state.noted, state.logged = under, state.logged || under && aloud
	s.mu.Unlock()
	var err error
	switch {
	case under:
		err = s.worker.store.NoteProgress(s.ctx, progress)
	case noted:
		err = s.worker.store.EndProgress(context.WithoutCancel(s.ctx), kind)
	}
	if err != nil {
		s.worker.log.Debug("cannot note the progress of a sweep", "error", err)
	}
	if under && aloud {
		out := attributes(progress)
		if left, ok := progress.Left(); ok {
			out = append(out, "left", left.Round(time.Second).String())
		}
		s.worker.log.Info("sweeping", out...)
	}
}

func attributes(p store.SweepProgress) []any {
	if p.Kind == store.SweepSet {
		return []any{"sets", p.Scanned, "of", p.Total, "unlinked", p.Unlinked}
	}
	return []any{"patterns", p.Patterns, "scanned", p.Scanned, "of", p.Total, "unlinked", p.Unlinked}
}

const (
	// countShare is how many times as long as a count of the sets that wait took the next one waits.
	countShare = 20
	// steadyTime is for how long no more sets than a batch must have come before their rate tells when all will be
	// taken.
	steadyTime = 5 * time.Second
)

// setCounts are what counts of the sets that wait have found since sets began.
type setCounts struct {
	next  time.Time // no count before
	base  int64     // the total that later ones are compared with
	grown time.Time // when it last rose
}

// take records a total, and reports whether requests keep arriving. What is being finished while others are counted may
// appear on both sides or on none, so that a batch more or less does not count as growth.
func (c *setCounts) take(total int64, took time.Duration) (arriving bool) {
	now := time.Now()
	if total > c.base+setsOfABatch || c.grown.IsZero() {
		c.base, c.grown = total, now
	}
	c.next = now.Add(countShare * took)
	return now.Sub(c.grown) < steadyTime
}

// countSets brings the total of the sets up to date, if they are under way: those that were taken and those that wait.
func (s *sweepWatch) countSets() {
	s.mu.Lock()
	progress := s.states[store.SweepSet]
	began, taken := progress.began, progress.progress.Scanned
	wanted := progress.running && !time.Now().Before(progress.counts.next)
	s.mu.Unlock()
	if !wanted {
		return
	}
	asked := time.Now()
	n, err := s.worker.store.CountSweeps(s.ctx, store.SweepSet)
	if err != nil {
		s.worker.log.Debug("cannot count the sets that wait", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if progress.began != began { // others are under way by now
		return
	}
	total := taken + int64(n)
	progress.arriving = progress.counts.take(total, time.Since(asked))
	progress.progress.Total = max(total, progress.progress.Scanned)
}
