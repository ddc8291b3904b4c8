package maintenance

import (
	"context"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/store"
)

const (
	// between two checks of the sweep lock, and two updates for "unstale status"
	noteInterval = time.Second
	logInterval  = 10 * time.Second // between two lines in the log
)

// A watch supervises running sweeps. It records their progress once per second in MySQL and every
// ten seconds in the log, so short sweeps log nothing. It cancels all sweeps if the sweep lock is
// lost, since another worker may then hold it, or if an operator pauses the workers. Safe for
// concurrent use.
type sweepWatch struct {
	cfg    *SweepConfig
	lock   *store.SweepLock
	ctx    context.Context // of the sweeps
	cancel context.CancelCauseFunc
	stop   chan struct{}
	group  sync.WaitGroup

	mu     sync.Mutex
	states map[store.SweepKind]*state
}

// A state records how far the sweeps of one kind are.
type state struct {
	progress store.SweepProgress
	began    time.Time
	running  bool // a sweep of the kind is running
	noted    bool // MySQL has its progress
	logged   bool // the log has its progress

	// Of sets:
	counts   setCounts
	arriving bool // requests keep arriving
	large    int  // large sets that are left to clear
}

// newSweepWatch starts a watch, which runs until end is called. The sweeps must use the watch's context.
func newSweepWatch(ctx context.Context, cfg *SweepConfig, lock *store.SweepLock) *sweepWatch {
	w := &sweepWatch{cfg: cfg, lock: lock, stop: make(chan struct{}), states: map[store.SweepKind]*state{
		store.SweepPattern: {}, store.SweepSet: {},
	}}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.group.Go(w.run)
	return w
}

// begin records that sweeps of a kind begin.
func (s *sweepWatch) begin(p store.SweepProgress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[p.Kind]
	*st = state{progress: p, began: time.Now(), running: true, noted: st.noted}
}

// beginSets records that a batch of sets begins, whether the first one or a later one.
func (s *sweepWatch) beginSets() {
	s.mu.Lock()
	under := s.states[store.SweepSet].running
	s.mu.Unlock()
	if !under {
		s.begin(store.SweepProgress{Kind: store.SweepSet})
	}
}

// setsInHand records how many large sets are left to clear. How long they take is unknown.
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

// over records that the sweeps of a kind have ended.
func (s *sweepWatch) over(kind store.SweepKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[kind]
	if st.running && st.logged {
		s.cfg.Log.Info("swept", append(attributes(st.progress), "took", time.Since(st.began).Round(time.Millisecond).String())...)
	}
	st.running = false
}

// end ends the watch. It returns the reason if the watch stopped the sweeps.
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
	ticker := time.NewTicker(noteInterval)
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
		if s.cfg.Paused() {
			s.cancel(ErrSweepPaused)
		} else if err := s.lock.Check(s.ctx); err != nil {
			s.cancel(err)
		}
		if s.ctx.Err() != nil {
			continue
		}
		aloud := time.Since(said) >= logInterval
		if aloud {
			said = time.Now()
		}
		s.countSets()
		for kind := range s.states {
			s.tell(kind, aloud)
		}
	}
}

// tell records in MySQL how far the sweeps of a kind are or that they have ended, even while the
// worker is being stopped. If aloud, it also logs the progress. An error does not stop the sweeps.
func (s *sweepWatch) tell(kind store.SweepKind, aloud bool) {
	s.mu.Lock()
	st := s.states[kind]
	progress, under, noted := st.progress, st.running, st.noted
	if !under {
		s.cfg.Metrics.SoFar(kind, 0, 0)
	} else {
		s.cfg.Metrics.SoFar(kind, progress.Scanned, progress.Total)
	}
	progress.ForMicros = time.Since(st.began).Microseconds()
	progress.Unsure = st.arriving || st.large > 0
	st.noted, st.logged = under, st.logged || under && aloud
	s.mu.Unlock()
	var err error
	switch {
	case under:
		err = s.cfg.Requests.NoteProgress(s.ctx, progress)
	case noted:
		err = s.cfg.Requests.EndProgress(context.WithoutCancel(s.ctx), kind)
	}
	if err != nil {
		s.cfg.Log.Debug("cannot record the progress of a sweep", "error", err)
	}
	if under && aloud {
		out := attributes(progress)
		if left, ok := progress.Left(); ok {
			out = append(out, "left", left.Round(time.Second).String())
		}
		s.cfg.Log.Info("sweeping", out...)
	}
}

func attributes(p store.SweepProgress) []any {
	if p.Kind == store.SweepSet {
		return []any{"sets", p.Scanned, "of", p.Total, "unlinked", p.Unlinked}
	}
	return []any{"patterns", p.Patterns, "scanned", p.Scanned, "of", p.Total, "unlinked", p.Unlinked}
}

const (
	// countShare: after a count of the waiting sets, the next count waits this many times as long
	// as the count took.
	countShare = 20
	// steadyTime is how long the total must have grown by at most one batch before an estimate of
	// the remaining time is meaningful.
	steadyTime = 5 * time.Second
)

// setCounts are the results of counting the waiting sets since the sweep of sets began.
type setCounts struct {
	next  time.Time // no count before
	base  int64     // the total that later ones are compared with
	grown time.Time // when it last rose
}

// take records a total and reports whether requests keep arriving. A set that is finished during
// the count may be counted twice or not at all, so a difference of up to one batch does not count
// as growth.
func (c *setCounts) take(total int64, took time.Duration) (arriving bool) {
	now := time.Now()
	if total > c.base+setsOfABatch || c.grown.IsZero() {
		c.base, c.grown = total, now
	}
	c.next = now.Add(countShare * took)
	return now.Sub(c.grown) < steadyTime
}

// countSets updates the total of the running sweep of sets: the sets that were cleared and those
// that wait.
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
	n, err := s.cfg.Requests.CountSweeps(s.ctx, store.SweepSet)
	if err != nil {
		s.cfg.Log.Debug("cannot count the sets that wait", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if progress.began != began { // other sweeps have begun meanwhile
		return
	}
	total := taken + int64(n)
	progress.arriving = progress.counts.take(total, time.Since(asked))
	progress.progress.Total = max(total, progress.progress.Scanned)
}
