package maintenance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
)

// A Sweeper carries out sweeps. Its methods are safe for concurrent use, except that only one of
// Run and Sweep may run at a time.
type Sweeper struct {
	Deps
	metrics   SweepMetrics
	requested chan struct{} // a batch requested sweeps; capacity 1, sent to without waiting
}

// NewSweeper returns a Sweeper.
func NewSweeper(d Deps, m SweepMetrics) *Sweeper {
	return &Sweeper{Deps: d, metrics: m, requested: make(chan struct{}, 1)}
}

// Requested wakes the Sweeper after a batch has requested sweeps. It does not block.
func (s *Sweeper) Requested() { Nudge(s.requested) }

// Run carries out requested sweeps until ctx ends. It starts requests of this worker immediately,
// and checks for requests of other workers once per second.
func (s *Sweeper) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	outages, contended := 0, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.requested:
		}
		if s.State.MayBePaused() || s.Store.Sessions.Hung() != nil {
			timer.Reset(sleep.Jitter(sweepPeriod/4, 0.1))
			continue
		}
		n, err := s.Sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrSweepPaused): // not a fault
			timer.Reset(sweepPeriod)
			continue
		case errors.Is(err, ErrElsewhere):
			s.State.SweptElsewhere()
			timer.Reset(sleep.Jitter(sweepPeriod, 0.1))
			continue
		case IsLoss(err):
			s.State.LossFound()
			timer.Reset(0) // the scan begins again
			continue
		case s.State.Contended(err, contended):
			contended++
			timer.Reset(Pause(err, contended))
			continue
		case err != nil:
			outages++
			s.failed(ctx, err)
			timer.Reset(Pause(err, outages))
			continue
		case n > 0:
			timer.Reset(0)
		default:
			timer.Reset(sleep.Jitter(sweepPeriod, 0.1))
		}
		outages, contended = 0, 0
		if s.State.SweepDone() {
			if err := s.Store.Sweeps.SweepsWork(ctx); err != nil {
				s.Log.Debug("cannot delete the recorded failure of sweeps", "error", err)
			}
		}
	}
}

// failed reports that sweeps fail as a whole. If the cause is Redis, it also records it for
// "unstale status"; an outage of MySQL cannot be recorded in MySQL.
func (s *Sweeper) failed(ctx context.Context, err error) {
	s.State.SweepFailed(err)
	if !IsRedis(err) {
		return
	}
	if err := s.Store.Sweeps.NoteSweepFailure(ctx, err); err != nil {
		s.Log.Debug("cannot record the failure of sweeps", "error", err)
	}
}

// Sweep acquires the sweep lock and carries out the waiting requests. It returns how many it
// carried out. The error is ErrElsewhere if another worker sweeps.
func (s *Sweeper) Sweep(ctx context.Context) (done int, err error) {
	asked := s.metrics.Call()
	waiting, err := s.Store.Sweeps.Sweeps(ctx, 1)
	asked()
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	lock, err := s.Store.Sweeps.TrySweepLock(ctx) // one worker sweeps at a time
	if err != nil {
		return 0, err
	}
	if lock == nil {
		return 0, ErrElsewhere
	}
	defer lock.Release()
	watch := newSweepWatch(ctx, s, lock)
	done, err = newRounds(s, watch).sweepRequests()
	if cause := watch.stopSweeps(); cause != nil {
		err = cause
	}
	return done, err
}

const (
	patternsOfAScan = 10_000
	bytesOfAScan    = 2 << 20 // of patterns
	setsOfABatch    = 500     // as many as one row of the journal takes
	batchesOfSets   = 2       // at a time: one uses Redis while the other one uses MySQL
	bytesOfABatch   = 1 << 20 // of the names of sets
)

var (
	// ErrSweepPaused ends sweeps that an operator's pause finds under way. Their requests wait.
	ErrSweepPaused = errors.New("all workers are paused")
	// ErrElsewhere reports that another worker sweeps.
	ErrElsewhere = errors.New("another worker sweeps")
)

// sweepPeriod is how often a Sweeper checks for requests of other workers.
const sweepPeriod = time.Second

// SweepMetrics measure sweeps.
type SweepMetrics struct {
	// Call begins a call to MySQL, which ends with the function that it returns.
	Call        func() (end func())
	Seconds     prometheus.Observer  // of a keyspace scan or of a batch of index sets
	Swept, Keys prometheus.Counter   // finished sweeps, and the keys that they unlinked
	Done, Size  *prometheus.GaugeVec // how far the sweeps of a kind are
}

// rounds runs the sweeps of the process that holds the sweep lock: batches of index sets and,
// concurrently, scans for patterns. Neither waits for the other, but they share one limit on
// Redis's time. The goroutine of sweepRequests owns the struct.
type rounds struct {
	*Sweeper
	watch *sweepWatch
	ended chan outcome
	kinds [2]*kind
}

// A kind is the sweeps of one kind.
type kind struct {
	of      store.SweepKind
	sweep   func(ctx context.Context, requests []store.Sweep) (done int, err error)
	most    int // batches or scans at a time
	running int
	// the last request that was tried; the next round tries all that still wait
	after uint64
	err   error     // of this round
	retry time.Time // no round begins before
}

// An outcome is the result of a batch of sets or of a scan.
type outcome struct {
	of   *kind
	done int
	err  error
}

func newRounds(of *Sweeper, watch *sweepWatch) *rounds {
	s := &rounds{Sweeper: of, watch: watch, ended: make(chan outcome)}
	do := &executor{Sweeper: of, watch: watch}
	s.kinds[0] = &kind{of: store.SweepPattern, sweep: do.patterns, most: 1}
	s.kinds[1] = &kind{of: store.SweepSet, sweep: do.sets, most: batchesOfSets}
	return s
}

// sweepRequests sweeps until no request that can be carried out is left. A new request starts
// immediately, or after the running sweeps of its kind, since they may have passed its keys
// already.
func (s *rounds) sweepRequests() (done int, err error) {
	ctx, cancel := context.WithCancel(s.watch.ctx)
	defer cancel()
	ticker := time.NewTicker(sweepPeriod)
	defer ticker.Stop()
	for {
		running := false
		for _, k := range s.kinds {
			for s.startNext(ctx, k) {
			}
			running = running || k.running > 0
		}
		if !running {
			return done, errors.Join(s.kinds[0].err, s.kinds[1].err)
		}
		select {
		case o := <-s.ended:
			done += o.done
			o.of.running--
			s.endSweep(o.of, o.err)
			if IsLoss(o.err) {
				cancel() // all sweeps begin again
			}
		case <-s.requested:
		case <-ticker.C:
		}
	}
}

// startNext starts the next requests of a kind, if there are any and they need not wait for those
// of the kind that are running. A round begins after all of the last one have ended.
func (s *rounds) startNext(ctx context.Context, k *kind) (started bool) {
	if k.running == k.most || k.running > 0 && k.after == 0 || ctx.Err() != nil || time.Now().Before(k.retry) {
		return false
	}
	requests, err := s.next(ctx, k)
	if err != nil {
		s.endSweep(k, err)
		return false
	}
	if len(requests) == 0 && k.after > 0 {
		if k.running > 0 {
			return false
		}
		if k.after = 0; k.err != nil { // the round has ended
			k.retry = time.Now().Add(sweepPeriod)
		}
		s.watch.over(k.of)
		return false
	}
	if k.after == 0 {
		k.err = nil
	}
	if len(requests) == 0 {
		return false
	}
	k.running++
	k.after = requests[len(requests)-1].ID
	go func() {
		done, err := k.sweep(ctx, requests)
		s.ended <- outcome{k, done, err}
	}()
	return true
}

// next returns the requests of the next batch or scan. It reads the lease after their ages and
// before they are carried out: whether this is their second sweep depends on both.
func (s *rounds) next(ctx context.Context, k *kind) ([]store.Sweep, error) {
	defer s.metrics.Call()()
	limit, bytes := setsOfABatch, bytesOfABatch
	if k.of == store.SweepPattern {
		limit, bytes = patternsOfAScan, bytesOfAScan
	}
	requests, err := s.Store.Sweeps.SweepsOf(ctx, k.of, k.after, limit, bytes)
	var lease time.Duration
	if err == nil && len(requests) > 0 {
		own, _ := s.Lease.Now()
		lease, err = s.Store.Workers.LongestLease(ctx, own)
	}
	for i := range requests {
		requests[i].Lease = lease
	}
	return requests, err
}

// endSweep records the error of a batch or a scan, if it had any. Unless it concerns single
// requests, it ends the round.
func (s *rounds) endSweep(k *kind, err error) {
	if err != nil && !IsLoss(k.err) { // which ends the others with an error
		k.err = err
	}
	if some := (*someAway)(nil); err != nil && !errors.As(err, &some) { // else the others continue
		k.after, k.retry = 0, time.Now().Add(sweepPeriod)
	}
	if k.after == 0 && k.running == 0 { // an error has ended the round, and all of it has ended
		s.watch.over(k.of)
	}
	if k.err != nil && s.watch.ctx.Err() == nil && !IsLoss(k.err) {
		s.failed(s.watch.ctx, k.err)
	}
}

const (
	// between two checks of the sweep lock, and two updates for "unstale status"
	noteInterval = time.Second
	logInterval  = 10 * time.Second // between two lines in the log
)

// A sweepWatch supervises running sweeps. It records their progress once per second in MySQL and every
// ten seconds in the log, so short sweeps log nothing. It cancels all sweeps if the sweep lock is
// lost, since another worker may then hold it, or if an operator pauses the workers. Safe for
// concurrent use.
type sweepWatch struct {
	*Sweeper
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

// newSweepWatch starts a watch, which runs until stopSweeps. The sweeps must use the watch's
// context.
func newSweepWatch(ctx context.Context, of *Sweeper, lock *store.SweepLock) *sweepWatch {
	w := &sweepWatch{Sweeper: of, lock: lock, stop: make(chan struct{}), states: map[store.SweepKind]*state{
		store.SweepPattern: {}, store.SweepSet: {},
	}}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.group.Go(w.superviseSweeps)
	return w
}

// markRunning records that sweeps of a kind have begun.
func (s *sweepWatch) markRunning(p store.SweepProgress) {
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
		s.markRunning(store.SweepProgress{Kind: store.SweepSet})
	}
}

// setsInHand records how many large sets are left to clear. How long they take is unknown.
func (s *sweepWatch) setsInHand(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[store.SweepSet].large = n
}

// updateProgress records how far sweeps of a kind are.
func (s *sweepWatch) updateProgress(kind store.SweepKind, change func(*store.SweepProgress)) {
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
		s.Log.Info("swept", append(attributes(st.progress), "took", time.Since(st.began).Round(time.Millisecond).String())...)
	}
	st.running = false
}

// stopSweeps ends the watch. It returns the reason if the watch stopped the sweeps.
func (s *sweepWatch) stopSweeps() error {
	close(s.stop)
	s.group.Wait()
	var cause error
	if s.ctx.Err() != nil {
		cause = context.Cause(s.ctx)
	}
	s.cancel(nil)
	return cause
}

func (s *sweepWatch) superviseSweeps() {
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
		if s.State.MayBePaused() {
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
	done, size := progress.Scanned, progress.Total
	if !under {
		done, size = 0, 0
	}
	s.metrics.Done.WithLabelValues(string(kind)).Set(float64(done))
	s.metrics.Size.WithLabelValues(string(kind)).Set(float64(size))
	progress.ForMicros = time.Since(st.began).Microseconds()
	progress.Unsure = st.arriving || st.large > 0
	st.noted, st.logged = under, st.logged || under && aloud
	s.mu.Unlock()
	var err error
	switch {
	case under:
		err = s.Store.Sweeps.NoteProgress(s.ctx, progress)
	case noted:
		err = s.Store.Sweeps.EndProgress(context.WithoutCancel(s.ctx), kind)
	}
	if err != nil {
		s.Log.Debug("cannot record the progress of a sweep", "error", err)
	}
	if under && aloud {
		out := attributes(progress)
		if left, ok := progress.Left(); ok {
			out = append(out, "left", left.Round(time.Second).String())
		}
		s.Log.Info("sweeping", out...)
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
	// steadyTime is how long the total must have grown by at most two batches before an estimate of
	// the remaining time is meaningful.
	steadyTime = 5 * time.Second
)

// setCounts are the results of counting the waiting sets since the sweep of sets began.
type setCounts struct {
	next  time.Time // no count before
	base  int64     // the total that later ones are compared with
	grown time.Time // when it last rose
}

// recordTotal records a total and reports whether requests keep arriving. A set that is finished
// during the count may be counted twice or not at all, so a difference of up to two batches does
// not count as growth.
func (c *setCounts) recordTotal(total int64, took time.Duration) (arriving bool) {
	now := time.Now()
	if total > c.base+batchesOfSets*setsOfABatch || c.grown.IsZero() {
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
	n, err := s.Store.Sweeps.CountSweeps(s.ctx, store.SweepSet)
	if err != nil {
		s.Log.Debug("cannot count the sets that wait", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if progress.began != began { // other sweeps have begun meanwhile
		return
	}
	total := taken + int64(n)
	progress.arriving = progress.counts.recordTotal(total, time.Since(asked))
	progress.progress.Total = max(total, progress.progress.Scanned)
}
