package worker

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/unstale/unstale/internal/store"
)

// What the tests of this package put between a worker and its servers, or look at behind its back.

type (
	Engine  = engine
	Redis   = cache
	MapFile = mapFile
)

// NewEngine makes the inside of a worker of parts that the caller opened, and closes.
func NewEngine(cfg Config, store *store.Store, redis Redis, maps *MapFile, log *slog.Logger) (*Engine, error) {
	cfg.MySQL, cfg.Redis, cfg.MapFile, cfg.Log = nil, nil, "", log
	cfg = cfg.WithDefaults()
	if err := cfg.validateWork(); err != nil {
		return nil, err
	}
	metrics := newMetrics(maps)
	return newEngine(cfg, store, redis, maps, metrics, newHealth(log, metrics)), nil
}

// OpenMapFile is what a worker does with Config.MapFile.
var OpenMapFile = openMapFile

// ReadGauges is what cron does.
func (w *engine) ReadGauges(ctx context.Context) { w.readGauges(ctx) }

// Prove is what the prover does every half second, of a worker that works.
func (w *engine) Prove(ctx context.Context) {
	w.paused.Store(false)
	w.prover.step(ctx)
}

// ListedEarlier moves the times at which rows that wait were first listed into the past.
func (w *engine) ListedEarlier(by time.Duration) {
	for _, t := range w.prover.tables {
		for at, since := range t.seen {
			t.seen[at] = since.Add(-by)
		}
	}
}

// SawFirstRow moves the time at which the first row was first seen.
func (w *engine) SawFirstRow(by time.Duration) { w.first.seen = w.first.seen.Add(by) }

// TellVanished lets the next line of what vanishes be due, as an hour does.
func (w *engine) TellVanished() { w.dropped.due, w.undeclared.due = time.Now(), time.Now() }

// Run works without the checks of the start.
func (w *engine) Run(ctx context.Context) error { return w.run(ctx) }

func (w *engine) Drain(ctx context.Context) (Result, error)     { return w.drain(ctx) }
func (w *engine) DrainRows(ctx context.Context) (Result, error) { return w.drainRows(ctx) }
func (w *engine) Health() *health                               { return w.health }
func (w *engine) Metrics() *metrics                             { return w.metrics }

func (h *health) Ready() error          { return h.ready() }
func (h *health) Alive() error          { return h.alive() }
func (h *health) Stalled() error        { return h.stalled }
func (h *health) Wait(err error)        { h.down(err) }
func (h *health) Handler() http.Handler { return h.handler() }

func (m *metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// MapWarning is the warning that status shows.
func (w *engine) MapWarning() string { return w.mapWarning() }
