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
)

// A State is what a worker is at. Its goroutines record what they find and go by what the others
// have found, and /healthz, /readyz, the heartbeats and the worker's status records tell it. Each
// change is logged once. Safe for concurrent use.
type State struct {
	Loop     *LoopState
	Progress *Progress
	log      *slog.Logger
	metrics  StateMetrics

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
}

// NewState returns the State of a worker before Begin.
func NewState(log *slog.Logger, m StateMetrics) *State {
	s := &State{Loop: &LoopState{}, Progress: &Progress{}, log: log, metrics: m, wake: make(chan struct{}, 1)}
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
	s.Loop.reset()
	s.Progress.reset()
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
	s.metrics.Stalled.WithLabelValues(StalledCommit).Set(oneIf(state == session.StateHung))
}

// InOutage reports whether the loop has logged an outage that has not ended.
func (s *State) InOutage() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outage != nil
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
		s.metrics.Stalled.WithLabelValues(r).Set(oneIf(r == reason))
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
	s.metrics.Paused.Set(oneIf(paused))
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
func (s *State) Wake() {
	select {
	case s.wake <- struct{}{}:
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
	healable := n.State != store.WorkerPaused && n.State != store.WorkerStarting
	if healable && s.Loop.Withholds(ErrHealing) && !s.Loop.Withholds(ErrEmptied) && !s.Progress.failed.Load() {
		n.State, n.Error = store.WorkerHealing, ""
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

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// A LoopState lets another goroutine than the loop send heartbeats on time: the loop polls MySQL,
// no operator has paused the workers, and Redis has everything that was settled. Safe for
// concurrent use.
type LoopState struct {
	mu       sync.Mutex
	withheld error     // why the loop withholds heartbeats, nil if it does not
	polled   time.Time // when MySQL last answered a poll
	batch    time.Time // deadline of the current batch, zero for none
	healed   string    // the beacon's epoch at the last comparison that found Redis complete
}

// reset is for a loop that has not polled yet.
func (p *LoopState) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.withheld, p.polled, p.batch, p.healed = errUnstarted, time.Time{}, time.Time{}, ""
}

// Withhold lets no heartbeat be sent until Polled. The reason is ErrHealing while the loop has to
// heal Redis, or to find that nothing needs healing.
func (p *LoopState) Withhold(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.withheld = why
}

// Withholds reports whether the loop withholds heartbeats for a reason.
func (p *LoopState) Withholds(why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Is(p.withheld, why)
}

// Polled records that the loop has polled and found no problem.
func (p *LoopState) Polled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.withheld, p.polled = nil, time.Now()
}

// BatchBegan records that a batch has claimed its rows, which counts as a poll, and the batch's
// deadline. BatchEnded records its end.
func (p *LoopState) BatchBegan(deadline time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch = deadline
}

func (p *LoopState) BatchEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch, p.polled = time.Time{}, time.Now()
}

// Healed records that Redis has everything, as of an epoch of its beacon. Every loss starts another
// epoch.
func (p *LoopState) Healed(epoch string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healed = epoch
}

// unpolled returns why no heartbeat may be sent now, or nil.
func (p *LoopState) unpolled() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.withheld == nil && now.Sub(p.polled) > pollLife && !now.Before(p.batch) {
		return errNotPolled
	}
	return p.withheld
}

// vouch is like unpolled, and also checks that Redis was last healed in an epoch of the beacon.
func (p *LoopState) vouch(epoch string) error {
	if err := p.unpolled(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.healed != epoch {
		return ErrHealing
	}
	return nil
}

// A Progress is how far a worker has come. Safe for concurrent use.
type Progress struct {
	failed  atomic.Bool               // the last step of the loop
	drained atomic.Int64              // Unix nanoseconds: when a step last found no more rows; 0: never
	proven  atomic.Pointer[time.Time] // until then all commits are invalidated
	others  atomic.Pointer[[]string]  // names of other outboxes in the same Redis
}

func (p *Progress) reset() {
	p.failed.Store(false)
	p.drained.Store(0)
	p.proven.Store(nil)
	p.others.Store(nil)
}

// StepEnded records the outcome of a step of the loop, and Drained that one found no more rowp.
func (p *Progress) StepEnded(failed bool) { p.failed.Store(failed) }

func (p *Progress) Drained() { p.drained.Store(time.Now().UnixNano()) }

// LastDrained returns when a step last found no more rows, zero for never.
func (p *Progress) LastDrained() time.Time {
	if at := p.drained.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Prove records that all commits until asOf are invalidated.
func (p *Progress) Prove(asOf time.Time) { p.proven.Store(&asOf) }

// Proven returns the time until which all commits are invalidated, zero if it is unknown.
func (p *Progress) Proven() time.Time {
	if asOf := p.proven.Load(); asOf != nil {
		return *asOf
	}
	return time.Time{}
}

// SetOthers records the names of other outboxes in the same Redis, as globp.
func (p *Progress) SetOthers(names []string) { p.others.Store(&names) }

// Others returns them, and whether they are known.
func (p *Progress) Others() (names []string, known bool) {
	if names := p.others.Load(); names != nil {
		return *names, true
	}
	return nil, false
}
