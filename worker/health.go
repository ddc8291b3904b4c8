package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

// stalled is how long the loop may make no turn before the process counts as dead: several times
// the longest batch.
const stalled = 30 * time.Second

// health holds the state of the worker. It logs each change once, and serves it over HTTP:
//
//   - /healthz is 200 while the loop runs, even in an outage: restart the process if it is not.
//   - /readyz is 200 while both servers answer and rows make progress, otherwise 503 with the
//     reason.
//
// Safe for concurrent use.
type health struct {
	log     *slog.Logger
	metrics *metrics

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

func newHealth(log *slog.Logger, m *metrics) *health {
	return &health{log: log, metrics: m, lastTurn: time.Now()}
}

// up records a turn of the loop that reached both servers. In a pause it reached MySQL and did not
// ask Redis, whose outage may last.
func (h *health) up(paused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastTurn = time.Now()
	if h.outage != nil && !(paused && maintenance.IsRedis(h.outage)) {
		h.log.Info("outage is over, working again", "lasted", time.Since(h.since).Round(time.Millisecond).String())
		h.outage = nil
	}
	if !h.started && !paused {
		h.started = true
		h.log.Info("working: mysql and redis answer")
	}
	h.metrics.up.Set(1)
	h.metrics.stalled.WithLabelValues(stalledCommit).Set(0)
}

// stall records why rows make no progress although both servers answer, or nil. Only a change is
// logged.
func (h *health) stall(reason string, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case why != nil && h.stalled == nil:
		h.log.Warn("rows make no progress", "reason", reason, "error", why)
	case why == nil && h.stalled != nil:
		h.log.Info("rows make progress again")
	}
	h.stalled, h.stallWhy = why, reason
	for _, r := range [...]string{stalledHeld, stalledBehind} {
		h.metrics.stalled.WithLabelValues(r).Set(oneIf(r == reason))
	}
}

// begin records that the worker has not made its first batch yet.
func (h *health) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastTurn, h.started = time.Now(), false
}

// turn records that the loop is processing something long.
func (h *health) turn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastTurn = time.Now()
}

// setPaused records whether an operator has paused the workers. Only a change is logged.
func (h *health) setPaused(resting bool, p *store.Pause) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case resting && !h.paused && p != nil:
		h.log.Warn("paused: rows wait until 'unstale resume'", "pause", p.String())
	case !resting && h.paused:
		h.log.Info("the pause is over, working again")
	}
	h.paused = resting
	h.metrics.paused.Set(0)
	if resting {
		h.metrics.paused.Set(1)
	}
}

// away records the unavailable masters of a Redis Cluster, and reports whether they have changed.
func (h *health) away(masters []string) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Equal(masters, h.missing) {
		return false
	}
	if len(masters) > 0 {
		h.log.Warn("part of redis is away: rows with keys there wait, the others go on", "masters", strings.Join(masters, ","))
	} else {
		h.log.Info("all of redis is back")
	}
	h.missing = masters
	h.metrics.away.Set(float64(len(masters)))
	return true
}

// lost logs that Redis has lost writes. heal logs the outcome.
func (h *health) lost(err error) {
	h.log.Warn("redis went back in time; it is compared with the journal", "error", err)
}

// inOutage reports whether the loop has logged an outage that has not ended.
func (h *health) inOutage() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.outage != nil
}

// down records a failed turn. Only a change of state is logged.
func (h *health) down(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastTurn = time.Now()
	state := maintenance.State(err)
	// errors of Redis end with theirs
	if fix := session.Fix(err); fix != "" && !maintenance.IsRedis(err) {
		err = fmt.Errorf("%w; %s", err, fix)
	}
	if h.outage == nil || h.state != state {
		if h.outage == nil {
			h.since = h.lastTurn
		}
		h.log.Warn("outage: rows wait, nothing is lost; trying again", "state", state, "error", err)
		h.metrics.outages.WithLabelValues(state).Inc()
	}
	h.outage, h.state = err, state
	h.metrics.up.Set(0)
	h.metrics.stalled.WithLabelValues(stalledCommit).Set(oneIf(state == session.StateHung))
}

// SweepFailed and SweepDone do the same for the sweeper, which may fail alone. SweepDone reports
// whether it had.
func (h *health) SweepFailed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sweepErr == nil {
		h.log.Warn("sweeps wait; trying again", "error", err)
	}
	h.sweepErr, h.sweepBad = err, time.Now()
	h.metrics.sweeping.Set(0)
}

// SweptElsewhere records that another worker sweeps. If sweeps fail on all workers, each of them
// fails at its turn, so another worker's turn proves nothing yet.
func (h *health) SweptElsewhere() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.sweepBad) > time.Minute {
		h.sweepErr = nil
		h.metrics.sweeping.Set(1)
	}
}

func (h *health) SweepDone() (failed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	failed = h.sweepErr != nil
	if failed {
		h.log.Info("sweeping again")
	}
	h.sweepErr = nil
	h.metrics.sweeping.Set(1)
	return failed
}

// subscribed records whether the worker is subscribed to wake-ups, and if not, why. It does not
// affect readiness, since polling finds every row. Each state is logged once until wake-ups arrive
// again.
func (h *health) subscribed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		if len(h.unheard) > 0 {
			h.log.Info("wake-ups are heard again")
		}
		h.unheard = nil
		h.metrics.subscribed.Set(1)
		return
	}
	h.metrics.subscribed.Set(0)
	if state := maintenance.State(err); !slices.Contains(h.unheard, state) {
		h.unheard = append(h.unheard, state)
		h.log.Warn("wake-ups are not heard, so rows wait for the next poll; trying again", "state", state, "error", err)
	}
}

// note returns the state of the worker for its status record.
func (h *health) note() store.WorkerNote {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.paused:
		return store.WorkerNote{State: store.WorkerPaused}
	case h.outage != nil:
		return store.WorkerNote{State: h.state, Error: h.outage.Error()}
	case !h.started:
		return store.WorkerNote{State: store.WorkerStarting}
	}
	n := store.WorkerNote{State: store.WorkerWorking}
	if h.stalled != nil {
		n.Stalled, n.StallError = h.stallWhy, h.stalled.Error()
	}
	if len(h.missing) > 0 {
		n.Error = "part of redis is away: " + strings.Join(h.missing, ",")
	}
	return n
}

// alive returns an error if the loop has not run for half a minute.
func (h *health) alive() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if silent := time.Since(h.lastTurn); silent > stalled {
		return fmt.Errorf("the loop has not run for %s", silent.Round(time.Second))
	}
	return nil
}

// ready returns why the worker does not work at the moment, or nil.
func (h *health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.paused: // on purpose
		return nil
	case h.outage != nil:
		return h.outage
	case !h.started:
		return errors.New("the first poll is not over")
	case h.sweepErr != nil:
		return fmt.Errorf("sweeps fail, rows go on: %w", h.sweepErr)
	case h.stalled != nil:
		return h.stalled
	}
	return nil
}

// handler serves /healthz and /readyz.
func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(h.alive))
	mux.HandleFunc("GET /readyz", answer(h.ready))
	return mux
}

func answer(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		reply := struct {
			OK    bool   `json:"ok"`
			Error string `json:"error,omitempty"`
		}{OK: true}
		status := http.StatusOK
		if err := check(); err != nil {
			reply.OK, reply.Error, status = false, err.Error(), http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false) // errors name rules such as &channel
		_ = e.Encode(reply)    // the client is gone, or it has the answer
	}
}
