package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/robfig/cron/v3"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

// A Worker delivers committed rows from MySQL to Redis. Several workers, in one process or in many,
// share the work. Its methods are safe for concurrent use, except that only one of Run, Drain and
// DrainRows can run at a time.
type Worker struct {
	cfg     Config
	maps    *mapFile
	metrics *metrics
	state   *maintenance.State
}

// New applies the defaults, checks cfg, reads the map and returns a Worker. It connects to nothing,
// and starts nothing that would have to be stopped. The error of a broken map is
// invalidation.Faults.
func New(cfg Config) (*Worker, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	maps, err := cfg.openMap()
	if err != nil {
		return nil, err
	}
	metrics := newMetrics(maps.Map(), maps.refusal() != nil)
	return &Worker{cfg: cfg, maps: maps, metrics: metrics, state: maintenance.NewState(cfg.Logger, metrics.state)}, nil
}

func (c Config) openMap() (*mapFile, error) {
	if c.MapFile != "" {
		return openMapFile(c.MapFile, c.MapEnv)
	}
	return compiledMap(c.Map), nil
}

// Run opens its connections, waits until MySQL answers, and works until ctx ends. Then it finishes
// the current batch, closes its connections and returns nil, within five seconds. It returns an
// error only if waiting cannot help: for a schema of another version (it wraps
// migrations.ErrSchema), a password, or a setting of the server. It waits out outages, also at the
// start. Run can be called again after it has returned.
func (w *Worker) Run(ctx context.Context) (err error) {
	e, err := w.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := await(ctx, e.Store.Sessions, e.State.Down); err != nil {
		if ctx.Err() != nil { // stopped while it waited
			return nil
		}
		return err
	}
	return e.run(ctx)
}

// Drain processes the existing rows, including due rows and sweeps, and returns when nothing is
// left to claim: for tests and for jobs. It leaves rows that other workers have claimed. An outage
// ends it with an error; the result has what was done before.
func (w *Worker) Drain(ctx context.Context) (Result, error) { return w.once(ctx, (*engine).drain) }

// DrainRows is like Drain, without the sweeps that the rows request, which wait.
func (w *Worker) DrainRows(ctx context.Context) (Result, error) {
	return w.once(ctx, (*engine).drainRows)
}

// once opens the worker's connections for a piece of work.
func (w *Worker) once(ctx context.Context, work func(*engine, context.Context) (Result, error)) (r Result, err error) {
	e, err := w.open()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := checkServer(ctx, e.Store.Sessions); err != nil {
		return r, err
	}
	defer e.heart.Goodbye(ctx)
	return work(e, ctx)
}

// open creates the engine of the worker. It does not dial.
func (w *Worker) open() (*engine, error) {
	pools, err := store.Open(w.cfg.sessions())
	if err != nil {
		return nil, err
	}
	keys, err := keyspace.Open(w.cfg.keyspace())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redis: %w", err), pools.Close())
	}
	if w.cfg.InstrumentRedis != nil {
		w.cfg.InstrumentRedis(keys.Nodes.Client())
	}
	e := newEngine(w.cfg, pools, keys.Port(), keys.StatusHashes, w.maps, w.metrics, w.state)
	e.close = func() error { return errors.Join(keys.Close(), pools.Close()) }
	return e, nil
}

// Map returns the map in use.
func (w *Worker) Map() *invalidation.Map { return w.maps.Map() }

// Reload asks a worker that runs to read MapFile now, and to log what came of it in any case. It
// does not wait, and does nothing where Config.Map was given.
func (w *Worker) Reload() { w.maps.Reload() }

// Metrics returns the metrics of the worker, for the registry of the service; docs/observability.md
// lists them. Two workers in one registry need different labels: see prometheus.WrapRegistererWith.
func (w *Worker) Metrics() prometheus.Collector { return w.metrics.registry }

// Alive returns an error if the loop has not run for half a minute, outage or not: restart the
// process.
func (w *Worker) Alive() error { return w.state.Alive() }

// Ready returns why the worker does not work at the moment, or nil.
func (w *Worker) Ready() error { return ready(w.state) }

// HealthHandler serves GET /healthz and GET /readyz: 200 while Alive and Ready return nil, else 503
// with the reason.
func (w *Worker) HealthHandler() http.Handler { return healthHandler(w.state) }

// Hooks are functions that a worker calls as it works. The goroutine that processes batches calls
// them, so they must not block. A nil hook is not called.
type Hooks struct {
	// Batch is called after each attempt to process a batch that has a row with a trace. Package
	// workerotel makes OpenTelemetry spans of the reports.
	Batch func(BatchReport)
}

// A BatchReport describes one attempt to process a batch.
type BatchReport struct {
	Start, End time.Time // Start may precede the insert of rows that the batch has collected
	Rows       int       // rows in the batch
	Traces     []string  // distinct values of the column trace, in the order of the rows
	// FirstID and LastID are the lowest and the highest ID in cache_outbox. Both are 0 if the batch
	// has only rows that were inserted into cache_outbox_delayed.
	FirstID, LastID uint64
	// Err is the outage that made the attempt fail, or nil. The worker then tries the rows again.
	Err error
	// Outage is the state of Err, as in the metric unstale_outages_total. It is empty if Err is
	// nil.
	Outage string
	// Result and Receivers are zero if Err is not nil. Receivers is the number of subscribers that
	// Redis delivered the messages to.
	Result    Result
	Receivers int
}

// callBatch calls the hook for one attempt to process rows, if any of them has a trace.
func (h Hooks) callBatch(rows []store.ClaimedRow, began time.Time, r Result, receivers int, failed error) {
	if h.Batch == nil {
		return
	}
	traces := distinctTraces(rows)
	if len(traces) == 0 {
		return
	}
	report := BatchReport{
		Start: began, End: time.Now(), Rows: len(rows), Traces: traces,
		Err: failed, Result: r, Receivers: receivers,
	}
	if failed != nil {
		report.Outage = maintenance.OutageState(failed)
	}
	report.FirstID, report.LastID = idRange(rows)
	h.Batch(report)
}

func distinctTraces(rows []store.ClaimedRow) (traces []string) {
	seen := map[string]bool{"": true}
	for i := range rows {
		if trace := rows[i].Trace; !seen[trace] {
			seen[trace] = true
			traces = append(traces, trace)
		}
	}
	return traces
}

// idRange returns the lowest and the highest ID in cache_outbox, or zeros.
func idRange(rows []store.ClaimedRow) (first, last uint64) {
	first = math.MaxUint64
	for i := range rows {
		if id := rows[i].FirstID; id != 0 { // otherwise the row was never in cache_outbox
			first, last = min(first, id), max(last, id)
		}
	}
	return min(first, last), last
}

var schedules = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// A cronJob is a task of maintenance.
type cronJob struct {
	schedule string
	writes   bool // to MySQL
	do       func(context.Context)
}

// startCron schedules jobs. The poll loop has separate timing. While a COMMIT hangs, no job writes.
func (b *base) startCron(ctx context.Context, jobs []cronJob) (*cron.Cron, error) {
	logger := cronLogger{b.Log}
	// Recover is innermost: outside SkipIfStillRunning, a panic would leave its job "running"
	// forever.
	c := cron.New(cron.WithParser(schedules), cron.WithLogger(logger),
		cron.WithChain(cron.SkipIfStillRunning(logger), cron.Recover(logger)))
	for _, job := range jobs {
		do := func() {
			if !job.writes || b.Store.Sessions.Hung() == nil {
				job.do(ctx)
			}
		}
		if _, err := c.AddFunc(job.schedule, do); err != nil {
			return nil, fmt.Errorf("schedule %q: %w", job.schedule, err)
		}
	}
	c.Start()
	return c, nil
}

// cronLogger passes cron's errors on; its schedule chatter is for debugging.
type cronLogger struct{ log *slog.Logger }

// Info implements cron.Logger.
func (l cronLogger) Info(msg string, keysAndValues ...any) {
	l.log.Debug("cron: "+msg, keysAndValues...)
}

// Error implements cron.Logger.
func (l cronLogger) Error(err error, msg string, keysAndValues ...any) {
	l.log.Error("cron: "+msg, append(keysAndValues, "error", err)...)
}
