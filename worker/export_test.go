package worker

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
)

// Hooks of the tests of this package between a worker and its servers, and access to internals.

type (
	Engine  = engine
	Redis   = maintenance.Redis
	MapFile = mapFile
)

// NewEngine makes the inside of a worker of parts that the caller opened, and closes.
func NewEngine(cfg Config, store *store.Store, redis Redis, maps *MapFile, log *slog.Logger) (*Engine, error) {
	cfg.MySQL, cfg.Redis, cfg.MapFile, cfg.Logger = nil, nil, "", log
	cfg = cfg.WithDefaults()
	if err := cfg.validateWork(); err != nil {
		return nil, err
	}
	metrics := newMetrics(maps.Map(), maps.refusal() != nil)
	return newEngine(cfg, store, redis, nil, maps, metrics, maintenance.NewState(log, metrics.state)), nil
}

// NewRedis joins the parts of a Keyspace.
func NewRedis(k *keyspace.Keyspace) Redis { return k.Port() }

// OpenMapFile opens the file of Config.MapFile.
var OpenMapFile = openMapFile

// ReadGauges runs the cron job.
func (w *engine) ReadGauges(ctx context.Context) { w.gauges.setGauges(ctx) }

// Prove makes one step of the prover, which runs every half second.
func (w *engine) Prove(ctx context.Context) {
	w.State.SetPaused(false, nil)
	w.prover.step(ctx)
}

// ListedEarlier moves the times when waiting rows were first listed, passed over or found free, into
// the past.
func (w *engine) ListedEarlier(by time.Duration) {
	if !w.prover.unclaimed.IsZero() {
		w.prover.unclaimed = w.prover.unclaimed.Add(-by)
	}
	for _, t := range w.prover.tables {
		for at, s := range t.seen {
			s.since = s.since.Add(-by)
			if !s.passed.IsZero() {
				s.passed = s.passed.Add(-by)
			}
			t.seen[at] = s
		}
	}
}

// SawFirstRow moves the time when the first row was first seen.
func (w *engine) SawFirstRow(by time.Duration) { w.gauges.first.seen = w.gauges.first.seen.Add(by) }

// TellVanished lets the next line of what vanishes be due, as an hour does.
func (w *engine) TellVanished() {
	w.vanished.dropped.due, w.vanished.undeclared.due = time.Now(), time.Now()
}

// Collect makes one batch that is open for further hints as long as a batch may take.
func (w *engine) Collect(ctx context.Context) (Result, error) {
	return w.loop.lanes.hints(ctx, time.Now().Add(time.Hour))
}

// Run works without the checks of the start.
func (w *engine) Run(ctx context.Context) error { return w.run(ctx) }

func (w *engine) Drain(ctx context.Context) (Result, error)     { return w.drain(ctx) }
func (w *engine) DrainRows(ctx context.Context) (Result, error) { return w.drainRows(ctx) }
func (w *engine) Health() health                                { return health{w.State} }
func (w *engine) Metrics() *metrics                             { return w.metrics }

// A health is the state of a worker, and its HTTP handler.
type health struct{ *maintenance.State }

func (h health) Ready() error          { return ready(h.State) }
func (h health) Handler() http.Handler { return healthHandler(h.State) }

func (m *metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// MapWarning returns the warning that status shows.
func (w *engine) MapWarning() string { return w.status.deprecated.warning() }

// Fold runs the cron job.
func (w *engine) Fold(ctx context.Context) { w.counting.foldCounts(ctx) }

// Thaw forgets the other workers, as if the process had been frozen for longer than a worker without
// a new record lives. An exchange that is under way ends first: it would forget the thaw.
func (w *engine) Thaw() {
	w.presence.mu.Lock()
	defer w.presence.mu.Unlock()
	r := &w.maps.routes
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others, r.agreed = nil, time.Time{}
	r.adopt()
}

// Allow lets the worker try the refused channels again, as a minute does.
func (w *engine) Allow() {
	r := &w.maps.routes
	r.mu.Lock()
	defer r.mu.Unlock()
	for channel := range r.refused {
		r.refused[channel] = time.Unix(1, 0)
	}
}
