package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unstale/unstale/internal/store"
)

// A Worker carries committed rows from MySQL to Redis. Several workers, in one process or in many, share the
// work. One goroutine each runs the loop, the sweeper, the wake-up, the map's reload and the cron jobs; they
// meet in channels only.
type Worker struct {
	cfg       Config
	store     *store.Store
	redis     Redis
	maps      *MapFile
	log       *slog.Logger
	metrics   *Metrics
	health    *Health
	passLimit time.Duration // of one pass, from the claim to the commit
	size      batchSize     // of the next claim
	replays   batchSize     // of the next claim of journalled batches
	ledger    ledger        // of what the journal says that Redis has
	progress  replayLog
	lately    journalEntities
	burials   *tidings
	delays    *tidings
	unread    *unreadTables

	wake     chan struct{} // somebody committed; capacity 1, sent to without waiting
	sweepNow chan struct{} // a pass requested sweeps; likewise
	lossSeen atomic.Bool   // by the sweeper, for the loop to heal
	resting  atomic.Bool   // by the loop, for the sweeper: an operator has paused all workers, or may have
}

// Deps are what a Worker works with. All are required but Log.
type Deps struct {
	Store *store.Store
	Redis Redis
	Maps  *MapFile
	Log   *slog.Logger // nil: slog.Default()
}

// New checks cfg and returns a Worker. It starts nothing.
func New(cfg Config, deps Deps) (*Worker, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Store == nil || deps.Redis == nil || deps.Maps == nil {
		return nil, errors.New("worker needs a store, a redis and a map")
	}
	if deps.Log == nil {
		deps.Log = slog.Default()
	}
	w := &Worker{
		cfg: cfg, store: deps.Store, redis: deps.Redis, maps: deps.Maps, log: deps.Log,
		passLimit: passLimit(deps.Store.ClaimTimeout()),
		size:      newBatchSize(cfg.BatchRows),
		replays:   newBatchSize(store.MaxReplay),
		wake:      make(chan struct{}, 1),
		sweepNow:  make(chan struct{}, 1),
		burials:   newTidings(deps.Log, "rows are dead letters now, see 'unstale dead list'"),
		delays:    newTidings(deps.Log, "rows are delayed and tried again, see cache_outbox_delayed"),
		unread:    newUnreadTables(deps.Log),
	}
	w.resting.Store(true) // until the loop has looked, or Drain
	w.metrics = newMetrics(w)
	w.health = newHealth(deps.Log, w.metrics)
	return w, nil
}

// passLimit keeps a pass below half of what the server allows a silent session, and below the five seconds in
// which a stop has to be over.
func passLimit(claimTimeout time.Duration) time.Duration {
	return min(claimTimeout*2/5, 4*time.Second)
}

// Metrics are the worker's metrics.
func (w *Worker) Metrics() *Metrics { return w.metrics }

// Health is the worker's health.
func (w *Worker) Health() *Health { return w.health }

// Run works until ctx ends, then finishes the pass in hand and returns nil, within five seconds. It returns an
// error only for what no waiting can cure; outages are waited out. Run may be called once.
func (w *Worker) Run(ctx context.Context) error {
	jobs, err := w.startCron(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { w.loop(ctx); return nil })
	group.Go(func() error { w.sweepLoop(ctx); return nil })
	group.Go(func() error { w.maps.watch(ctx, w.log, w.metrics); return nil })
	if w.cfg.WakeChannel != noWake {
		group.Go(func() error { w.listen(ctx); return nil })
	}
	err = group.Wait()
	w.burials.close()
	w.delays.close()
	<-jobs.Stop().Done() // cron jobs end with ctx
	return err
}

// Drain carries what is there now, due rows and sweeps included, and returns when nothing is left to claim.
// Rows that other workers hold are theirs. An outage ends it with an error.
func (w *Worker) Drain(ctx context.Context) (Result, error) {
	total, err := w.DrainRows(ctx)
	for swept := 1; swept > 0 && err == nil; {
		if swept, err = w.sweep(ctx); errors.Is(err, errLed) {
			err = nil
		}
	}
	if err != nil {
		err = fmt.Errorf("drain: %w", err)
	}
	return total, err
}

// DrainRows is Drain without the sweeps that the rows ask for, which wait.
func (w *Worker) DrainRows(ctx context.Context) (Result, error) {
	defer w.burials.close()
	defer w.delays.close()
	var total Result
	pause, err := w.store.Paused(ctx)
	if err != nil {
		return total, err
	}
	if pause != nil {
		return total, fmt.Errorf("all workers are paused %s; see 'unstale resume'", pause)
	}
	w.resting.Store(false)
	if err := w.heal(ctx); err != nil {
		return total, err
	}
	for _, claim := range []claimFunc{w.store.Claim, w.store.ClaimDue} {
		for {
			if ctx.Err() != nil {
				return total, ctx.Err()
			}
			r, err := w.pass(ctx, claim)
			total.add(r)
			if err != nil {
				return total, err
			}
			if r.Claimed == 0 {
				break
			}
		}
	}
	return total, nil
}

func (r *Result) add(o Result) {
	r.Claimed += o.Claimed
	r.Unlinked += o.Unlinked
	r.Delayed += o.Delayed
	r.Dead += o.Dead
	r.Repeats += o.Repeats
	r.Keys += o.Keys
	r.Messages += o.Messages
	r.Sweeps += o.Sweeps
	r.Took += o.Took
}
