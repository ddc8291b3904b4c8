package maintenance

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

const (
	// stuckAfter is how long the loop may make no turn before the process counts as dead: several
	// times the longest batch.
	stuckAfter = 30 * time.Second
	// pollLife is how long after a poll heartbeats may be sent: one period, plus as much as a poll
	// may be late.
	pollLife = Period * 5 / 4
)

// Why rows make no progress: the label of the metric unstale_stalled.
const (
	StalledCommit = "commit" // a COMMIT does not return
	StalledHeld   = store.StalledHeld
	StalledBehind = store.StalledBehind
)

// Reasons why heartbeats are withheld, in addition to outages.
var (
	errNotPolled = errors.New("mysql was not polled for a second")
	ErrHealing   = errors.New("redis went back in time, and is not healed yet")
	errUnstarted = errors.New("the first poll is not over")
	ErrPaused    = errors.New("all workers are paused")
	// ErrEmptied is the ErrHealing of a Redis that has lost everything, stale entries too.
	ErrEmptied = fmt.Errorf("%w: it holds no data, so nothing is stale, and the journal is made to match", ErrHealing)
	// ErrComparing is the ErrHealing of a worker that cannot tell yet whether anything is lost.
	ErrComparing = comparing{errors.New("redis may lack unlinks, or slots have only moved; it is compared again")}
)

type comparing struct{ error }

func (comparing) Unwrap() error { return ErrHealing }

// A State is the state of a worker. Its goroutines record what they find, and go by what the others
// have found. /healthz, /readyz, the heartbeats and the worker's status records report it. Each
// change is logged once. Safe for concurrent use.
type State struct {
	Loop *LoopState
	// Proven is the time until which all commits are invalidated, zero if it is unknown.
	Proven atomic.Pointer[time.Time]
	// Others are the names of other outboxes in the same Redis, as globs; nil: unknown.
	Others atomic.Pointer[[]string]

	log     *slog.Logger
	metrics StateMetrics

	wake        chan struct{} // rows were committed, or a loss waits; capacity 1, sent to without waiting
	lossFound   atomic.Bool   // another goroutine than the loop has found a loss, which the loop heals
	mayBePaused atomic.Bool   // an operator has paused all workers, or the loop has not looked yet

	mu       sync.Mutex
	lastTurn time.Time // the loop's last turn; zero before the first
	since    time.Time // of the outage
	outage   error     // nil while the servers answer
	state    string    // of the outage, as logged
	stalled  error     // nil while rows make progress
	stallWhy string    // its reason
	sweepErr error     // nil while sweeps work
	sweepBad time.Time // when they last failed here
	missing  []string  // unavailable masters of a Redis Cluster
	// logged states of the subscription since wake-ups last arrived
	unheard []string
	started bool
	paused  bool // an operator has paused all workers: no fault, and readiness does not tell
}

// StateMetrics are the metrics that a State sets. The gauges are 1 or 0, except for Away.
type StateMetrics struct {
	Up, Paused, Sweeping, Subscribed prometheus.Gauge
	Away                             prometheus.Gauge       // masters
	Stalled                          *prometheus.GaugeVec   // by reason
	Outages                          *prometheus.CounterVec // by OutageState
	Contention                       prometheus.Counter
}

// NewState returns the State of a worker that begins.
func NewState(log *slog.Logger, m StateMetrics) *State {
	s := &State{Loop: &LoopState{}, log: log, metrics: m, wake: make(chan struct{}, 1)}
	s.Begin()
	return s
}

// Begin records that the worker has not made its first batch yet. It counts as paused until the
// loop, or a drain, has looked.
func (s *State) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastTurn, s.started = time.Now(), false
	s.lossFound.Store(false)
	s.mayBePaused.Store(true)
	s.Proven.Store(&time.Time{})
	s.Others.Store(nil)
	s.Loop.reset()
}

// Up records a turn of the loop that reached both servers. In a pause it reached MySQL and did not
// ask Redis, whose outage may last.
func (s *State) Up(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastTurn = time.Now()
	if s.outage != nil && !(paused && IsRedis(s.outage)) {
		s.log.Info("outage is over, working again", "lasted", time.Since(s.since).Round(time.Millisecond).String())
		s.outage = nil
	}
	if !s.started && !paused {
		s.started = true
		s.log.Info("working: mysql and redis answer")
	}
	s.metrics.Up.Set(1)
	s.metrics.Stalled.WithLabelValues(StalledCommit).Set(0)
}

// Down records a failed turn. Only a change of state is logged.
func (s *State) Down(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastTurn = time.Now()
	state := OutageState(err)
	// errors of Redis end with theirs
	if fix := session.Fix(err); fix != "" && !IsRedis(err) {
		err = fmt.Errorf("%w; %s", err, fix)
	}
	if s.outage == nil || s.state != state {
		if s.outage == nil {
			s.since = s.lastTurn
		}
		s.log.Warn("outage: rows wait, nothing is lost; trying again", "state", state, "error", err)
		s.metrics.Outages.WithLabelValues(state).Inc()
	}
	s.outage, s.state = err, state
	s.metrics.Up.Set(0)
	s.metrics.Stalled.WithLabelValues(StalledCommit).Set(OneIf(state == session.StateHung))
}

// InOutage reports whether the loop has logged an outage that has not ended.
func (s *State) InOutage() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outage != nil
}

// mostContended is how many rollbacks in a row do not count as an outage.
const mostContended = 10

// Contended reports whether err is a rollback because another session was first, and counts it. n is
// how many came directly before; after mostContended, the next one counts as an outage.
func (s *State) Contended(err error, n int) bool {
	if !session.IsRollback(err) || n >= mostContended {
		return false
	}
	s.metrics.Contention.Inc()
	return true
}

// Stall records why rows make no progress although both servers answer, or nil. Only a change is
// logged.
func (s *State) Stall(reason string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case why != nil && s.stalled == nil:
		s.log.Warn("rows make no progress", "reason", reason, "error", why)
	case why == nil && s.stalled != nil:
		s.log.Info("rows make progress again")
	}
	s.stalled, s.stallWhy = why, reason
	for _, r := range [...]string{StalledHeld, StalledBehind} {
		s.metrics.Stalled.WithLabelValues(r).Set(OneIf(r == reason))
	}
}

// Turn records that the loop is processing something long.
func (s *State) Turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastTurn = time.Now()
}

// SetPaused records whether an operator has paused the workers, and who, as the log tells. Only a
// change is logged.
func (s *State) SetPaused(paused bool, p *store.Pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case paused && !s.paused && p != nil:
		s.log.Warn("paused: rows wait until 'unstale resume'", "pause", p.String())
	case !paused && s.paused:
		s.log.Info("the pause is over, working again")
	}
	s.paused = paused
	s.mayBePaused.Store(paused)
	s.metrics.Paused.Set(OneIf(paused))
}

// MayBePaused reports whether an operator has paused all workers, or may have: nothing has looked
// since Begin.
func (s *State) MayBePaused() bool { return s.mayBePaused.Load() }

// Rests reports whether rows cannot make progress, for a reason that the log has.
func (s *State) Rests() bool { return s.MayBePaused() || s.InOutage() }

// SetAway records the unavailable masters of a Redis Cluster, and reports whether they have changed.
func (s *State) SetAway(masters []string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(masters, s.missing) {
		return false
	}
	if len(masters) > 0 {
		s.log.Warn("part of redis is away: rows with keys there wait, the others go on", "masters", strings.Join(masters, ","))
	} else {
		s.log.Info("all of redis is back")
	}
	s.missing = masters
	s.metrics.Away.Set(float64(len(masters)))
	return true
}

// SweepFailed and SweepDone record the same of sweeps, which may fail alone. SweepDone reports
// whether they had.
func (s *State) SweepFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweepErr == nil {
		s.log.Warn("sweeps wait; trying again", "error", err)
	}
	s.sweepErr, s.sweepBad = err, time.Now()
	s.metrics.Sweeping.Set(0)
}

// SweptElsewhere records that another worker sweeps. If sweeps fail on all workers, each of them
// fails at its turn, so another worker's turn proves nothing yet.
func (s *State) SweptElsewhere() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.sweepBad) > time.Minute {
		s.sweepErr = nil
		s.metrics.Sweeping.Set(1)
	}
}

func (s *State) SweepDone() (failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed = s.sweepErr != nil
	if failed {
		s.log.Info("sweeping again")
	}
	s.sweepErr = nil
	s.metrics.Sweeping.Set(1)
	return failed
}

// Subscribed records whether the worker is subscribed to wake-ups, and if not, why. It does not
// affect readiness, since polling finds every row. Each state is logged once until wake-ups arrive
// again.
func (s *State) Subscribed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		if len(s.unheard) > 0 {
			s.log.Info("wake-ups are heard again")
		}
		s.unheard = nil
		s.metrics.Subscribed.Set(1)
		return
	}
	s.metrics.Subscribed.Set(0)
	if state := OutageState(err); !slices.Contains(s.unheard, state) {
		s.unheard = append(s.unheard, state)
		s.log.Warn("wake-ups are not heard, so rows wait for the next poll; trying again", "state", state, "error", err)
	}
}

// Wake makes the loop poll now, unless it will in any case.
func (s *State) Wake() { Nudge(s.wake) }

// Nudge sends to a channel of capacity 1 without waiting. If that is full, its receiver will know.
func Nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Woken is where the loop receives Wake.
func (s *State) Woken() <-chan struct{} { return s.wake }

// LogLoss logs that Redis has lost writes. The Healer logs the outcome.
func (s *State) LogLoss(err error) {
	s.log.Warn("redis went back in time; it is compared with the journal", "error", err)
}

// LossFound makes the loop heal a loss now.
func (s *State) LossFound() {
	s.lossFound.Store(true)
	s.Wake()
}

// TakeLoss reports whether LossFound was called since the last TakeLoss.
func (s *State) TakeLoss() bool { return s.lossFound.Swap(false) }

// Heals reports whether Redis may lack writes: the loop heals a loss, or will.
func (s *State) Heals() bool { return s.lossFound.Load() || s.Loop.Withholds(ErrHealing) }

// Note returns the state for a status record of the worker.
func (s *State) Note() store.WorkerNote {
	n := s.plainNote()
	if n.State != store.WorkerPaused && n.State != store.WorkerStarting && s.Loop.heals() {
		n.State, n.Error = store.WorkerHealing, ""
	}
	if n.State == store.WorkerWorking && s.Loop.Withholds(ErrComparing) {
		n.Error = ErrComparing.Error()
	}
	if stuck := s.Alive(); stuck != nil {
		n.State, n.Error = "stuck", stuck.Error()
	}
	return n
}

// plainNote is Note, except for a loop that heals or is stuck.
func (s *State) plainNote() store.WorkerNote {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.paused:
		return store.WorkerNote{State: store.WorkerPaused}
	case s.outage != nil:
		return store.WorkerNote{State: s.state, Error: s.outage.Error()}
	case !s.started:
		return store.WorkerNote{State: store.WorkerStarting}
	}
	n := store.WorkerNote{State: store.WorkerWorking}
	if s.stalled != nil {
		n.Stalled, n.StallError = s.stallWhy, s.stalled.Error()
	}
	if len(s.missing) > 0 {
		n.Error = "part of redis is away: " + strings.Join(s.missing, ",")
	}
	return n
}

// Alive returns an error if the loop has not run for half a minute.
func (s *State) Alive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if silent := time.Since(s.lastTurn); silent > stuckAfter {
		return fmt.Errorf("the loop has not run for %s", silent.Round(time.Second))
	}
	return nil
}

// SweepError returns why sweeps fail here, nil while they work.
func (s *State) SweepError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweepErr
}

// OneIf returns the value of a gauge that is 1 or 0.
func OneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// A LoopState has the results of the loop's steps. By them another goroutine sends heartbeats on
// time: the loop polls MySQL, no operator has paused the workers, and Redis has everything that was
// settled. Safe for concurrent use.
type LoopState struct {
	mu       sync.Mutex
	withheld error     // why the loop withholds heartbeats, nil if it does not
	polled   time.Time // when MySQL last answered a poll
	batch    time.Time // deadline of the current batch, zero for none
	healed   string    // the beacon's epoch at the last comparison that found Redis complete
	failed   bool      // the last step
	drained  time.Time // when a step last found no more rows; zero: never
}

// reset is for a loop that has not polled yet.
func (l *LoopState) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withheld, l.polled, l.batch, l.healed = errUnstarted, time.Time{}, time.Time{}, ""
	l.failed, l.drained = false, time.Time{}
}

// record changes the state.
func (l *LoopState) record(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// Withhold lets no heartbeat be sent until Polled. The reason is ErrHealing while the loop has to
// heal Redis, or to find that nothing needs healing.
func (l *LoopState) Withhold(why error) { l.record(func() { l.withheld = why }) }

// Withholds reports whether the loop withholds heartbeats for a reason.
func (l *LoopState) Withholds(why error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Is(l.withheld, why)
}

// Polled records that the loop has polled and found no problem.
func (l *LoopState) Polled() { l.record(func() { l.withheld, l.polled = nil, time.Now() }) }

// BatchBegan records that a batch has claimed its rows, which counts as a poll, and the batch's
// deadline. BatchEnded records its end.
func (l *LoopState) BatchBegan(deadline time.Time) { l.record(func() { l.batch = deadline }) }

func (l *LoopState) BatchEnded() { l.record(func() { l.batch, l.polled = time.Time{}, time.Now() }) }

// StepEnded records the outcome of a step, and Drained that a step found no more rows.
func (l *LoopState) StepEnded(failed bool) { l.record(func() { l.failed = failed }) }

func (l *LoopState) Drained() { l.record(func() { l.drained = time.Now() }) }

// LastDrained returns when a step last found no more rows, zero for never.
func (l *LoopState) LastDrained() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drained
}

// heals reports whether the loop unlinks again what Redis has certainly lost, and its last step did
// not fail. Entries may be stale then.
func (l *LoopState) heals() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.withheld == ErrHealing && !l.failed
}

// Healed records that Redis has everything, as of an epoch of its beacon. Every loss starts another
// epoch.
func (l *LoopState) Healed(epoch string) { l.record(func() { l.healed = epoch }) }

// unpolled returns why no heartbeat may be sent now, or nil.
func (l *LoopState) unpolled() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.withheld == nil && now.Sub(l.polled) > pollLife && !now.Before(l.batch) {
		return errNotPolled
	}
	return l.withheld
}

// vouch is like unpolled, and also checks that Redis was last healed in an epoch of the beacon.
func (l *LoopState) vouch(epoch string) error {
	if err := l.unpolled(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.healed != epoch {
		return ErrHealing
	}
	return nil
}
