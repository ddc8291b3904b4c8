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

	"github.com/unstale/unstale/internal/store"
)

// stalled is how long the loop may be silent before the process counts as dead: several times the longest batch.
const stalled = 30 * time.Second

// health knows whether the worker works and says so in the log, once for each change, and over HTTP:
//
//   - /healthz is 200 while the loop runs, outage or not: restart the process if it does not.
//   - /readyz is 200 while both servers answer and rows make progress, 503 with the reason otherwise.
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
	sweepErr error     // nil while sweeps work
	sweepBad time.Time // when they last failed here
	missing  []string  // masters of a Redis Cluster that are away
	silent   time.Time // since when heartbeats are withheld; zero while they are sent
	mute     []string  // why, as logged since they last were sent
	unheard  []string  // states, as logged, in which wake-ups have not been heard since they last were
	started  bool
	paused   bool // an operator has paused all workers: no fault, and readiness does not tell
}

func newHealth(log *slog.Logger, m *metrics) *health {
	return &health{log: log, metrics: m, lastTurn: time.Now()}
}

// up notes a turn of the loop that found both servers well.
func (h *health) up() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastTurn = time.Now()
	if h.outage != nil {
		h.log.Info("outage is over, working again", "lasted", time.Since(h.since).Round(time.Millisecond).String())
		h.outage = nil
	}
	if !h.started {
		h.started = true
		h.log.Info("working: mysql and redis answer")
	}
	h.metrics.up.Set(1)
	h.metrics.stalled.WithLabelValues(stalledCommit).Set(0)
}

// stall notes why rows make no progress although both servers answer, or nil. Only a change is logged.
func (h *health) stall(reason string, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case why != nil && h.stalled == nil:
		h.log.Warn("rows make no progress", "reason", reason, "error", why)
	case why == nil && h.stalled != nil:
		h.log.Info("rows make progress again")
	}
	h.stalled = why
	for _, r := range [...]string{stalledHeld, stalledBehind} {
		h.metrics.stalled.WithLabelValues(r).Set(oneIf(r == reason))
	}
}

// begin notes that the worker has yet to make its first batch, again.
func (h *health) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastTurn, h.started = time.Now(), false
}

// turn notes that the loop is at work on something long.
func (h *health) turn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastTurn = time.Now()
}

// setPaused notes whether an operator has paused the workers. Only a change is logged.
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

// away notes which masters of a Redis Cluster are away, and reports whether that has changed.
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

// lost tells that Redis has lost something. What comes of it is told by heal.
func (h *health) lost(err error) {
	h.log.Warn("redis went back in time; it is compared with the journal", "error", err)
}

// inOutage reports whether the loop has told of an outage that is not over.
func (h *health) inOutage() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.outage != nil
}

// down notes a turn that failed. Only a change of state is logged.
func (h *health) down(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastTurn = time.Now()
	state := outageState(err)
	if fix := store.Fix(err); fix != "" && !isOutage(err) { // errors of Redis end with theirs
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
	h.metrics.stalled.WithLabelValues(stalledCommit).Set(oneIf(state == store.StateHung))
}

// sweepFailed and sweepDone do the same for the sweeper, which may fail alone. sweepDone reports whether it had.
func (h *health) sweepFailed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sweepErr == nil {
		h.log.Warn("sweeps wait; trying again", "error", err)
	}
	h.sweepErr, h.sweepBad = err, time.Now()
	h.metrics.sweeping.Set(0)
}

// sweptElsewhere notes that another worker sweeps. While sweeps fail everywhere workers take turns at failing, so that
// somebody else's turn says nothing yet.
func (h *health) sweptElsewhere() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.sweepBad) > time.Minute {
		h.sweepErr = nil
		h.metrics.sweeping.Set(1)
	}
}

func (h *health) sweepDone() (failed bool) {
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

// subscribed notes whether the worker is subscribed to wake-ups, and if not, why. Readiness does not tell, since
// polling finds every row. Each state is logged once until wake-ups are heard again.
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
	if state := outageState(err); !slices.Contains(h.unheard, state) {
		h.unheard = append(h.unheard, state)
		h.log.Warn("wake-ups are not heard, so rows wait for the next poll; trying again", "state", state, "error", err)
	}
}

// silentLimit is how long heartbeats are withheld before the log tells: as long as readers wait for them.
const silentLimit = 3 * heartbeatPeriod

// heartbeat notes that a heartbeat was sent, or why not. Readiness does not tell, since rows are carried in any case.
func (h *health) heartbeat(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		if len(h.mute) > 0 {
			h.log.Info("heartbeats are sent again")
		}
		h.silent, h.mute = time.Time{}, nil
		h.metrics.heartbeat.Set(1)
		return
	}
	h.metrics.heartbeat.Set(0)
	if h.silent.IsZero() {
		h.silent = time.Now()
	}
	why := silenceOf(err)
	if time.Since(h.silent) >= silentLimit && !slices.Contains(h.mute, why) {
		h.mute = append(h.mute, why)
		h.log.Warn("heartbeats are withheld, so readers keep nothing in memory", "error", err)
	}
}

// silenceOf is why heartbeats are withheld, without the details of an outage.
func silenceOf(err error) string {
	for _, why := range []error{errNotPolled, errHealing, errUnstarted, errUnproven, errPaused, errShardAway, errIdle} {
		if errors.Is(err, why) {
			return why.Error()
		}
	}
	return outageState(err)
}

// noHeartbeats notes that none are asked for.
func (h *health) noHeartbeats() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent, h.mute = time.Time{}, nil
	h.metrics.heartbeat.Set(0)
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
	case h.paused: // it is wanted
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
