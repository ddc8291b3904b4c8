package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/otlp"
	"github.com/unstale/unstale/internal/store"
)

// An engine is a worker with its connections open. One goroutine each runs the loop, the sweeper, the prover, the
// wake-up, the heartbeats, the worker status in MySQL and that in Redis, the map's reload and the cron jobs.
type engine struct {
	cfg        Config
	store      *store.Store
	redis      cache
	close      func() error // of store and redis
	maps       *mapFile
	log        *slog.Logger
	metrics    *metrics
	health     *health
	batchLimit time.Duration // of one batch, from the claim to the commit
	size       batchSize     // of the next claim of light rows
	heavySize  batchSize     // of the next claim of heavy rows
	hot, due   *lane         // of cache_outbox, and of delayed rows whose time has come
	lanes      [2]*lane      // both; the second had the last heavy turn
	fair       fairShare
	healSize   batchSize      // of the next claim of journalled batches
	positions  knownPositions // of what the journal says that Redis has
	progress   healLog
	pulse      *pulse // of the loop, for heartbeats
	prover     prover
	source     sourceID
	board      *keyspace.Board // nil where the worker publishes no state
	journal    journalEntities
	deadLog    *rowLog
	delayLog   *rowLog
	dropped    vanishing // templates; of the loop
	undeclared vanishing // parameters; of the loop
	unread     *unreadTables
	deprecated deprecated
	spans      *otlp.Exporter // nil where there are none
	presence   presence
	first      firstRow // as the last reading of the gauges found it; of cron's goroutine

	summaryFailed bool // told of; by cron, which runs one at a time
	locks         lockWalk

	wake     chan struct{} // somebody committed; capacity 1, sent to without waiting
	sweepNow chan struct{} // a batch requested sweeps; likewise
	lossSeen atomic.Bool   // by another goroutine than the loop, for the loop to heal
	paused   atomic.Bool   // by the loop, for the sweeper: an operator has paused all workers, or may have
}

func newEngine(cfg Config, pools *store.Store, redis cache, maps *mapFile, metrics *metrics, health *health) *engine {
	w := &engine{
		cfg: cfg, store: pools, redis: measuredCache{redis, metrics.redis, metrics}, maps: maps, log: cfg.Log, metrics: metrics, health: health,
		batchLimit: pools.BatchLimit(),
		size:       newBatchSize(cfg.BatchRows),
		heavySize:  newBatchSize(min(cfg.BatchRows, heavyOfABatch)),
		pulse:      newPulse(),
		healSize:   batchSize{most: store.MaxHeal, now: firstHeal},
		wake:       make(chan struct{}, 1),
		sweepNow:   make(chan struct{}, 1),
		deadLog:    newRowLog(cfg.Log, "rows are dead letters now, see 'unstale dead list'"),
		delayLog:   newRowLog(cfg.Log, "rows are delayed and tried again, see cache_outbox_delayed"),
		dropped:    vanishing{counts: metrics.maps.dropped},
		undeclared: vanishing{counts: metrics.maps.undeclared},
		unread:     newUnreadTables(cfg.Log),
		presence:   presence{id: rand.Text()},
	}
	w.deprecated.log = cfg.Log
	maps.warn(cfg.Log)
	w.hot = &lane{claim: pools.Claim, size: &w.size, heavySize: &w.heavySize}
	w.due = &lane{claim: pools.ClaimDue, size: &w.size, heavySize: &w.heavySize}
	w.lanes = [2]*lane{w.hot, w.due}
	metrics.healing.Set(0) // of a run before this one
	metrics.healingLeft.Set(0)
	w.paused.Store(true) // until the loop has looked, or drain
	w.prover = prover{
		proof:  proof{limit: pools.ClaimTimeout() + lateGrace},
		outbox: pools, health: health, metrics: metrics,
		resting: func() bool { return w.paused.Load() || health.inOutage() },
	}
	return w
}

// run works until ctx ends, then finishes the batch in hand.
func (w *engine) run(ctx context.Context) error {
	jobs, err := w.startCron(ctx)
	if err != nil {
		return err
	}
	if err := w.introduce(ctx); err != nil {
		w.log.Debug("cannot say yet whose heartbeats these are", "error", err)
	}
	defer w.goodbye(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { w.loop(ctx); return nil })
	group.Go(func() error { w.sweepLoop(ctx); return nil })
	group.Go(func() error { w.prover.run(ctx); return nil })
	group.Go(func() error { w.heartbeats(ctx); return nil })
	group.Go(func() error { w.notePresence(ctx); return nil })
	group.Go(func() error { w.tellRedis(ctx); return nil })
	group.Go(func() error { w.tellDatabase(ctx); return nil })
	group.Go(func() error { w.maps.watch(ctx, w.log, w.metrics); return nil })
	if w.cfg.WakeChannel != noWake {
		group.Go(func() error { w.listen(ctx); return nil })
	}
	err = group.Wait()
	if w.spans != nil {
		go w.spans.Close(closeLimit) // beside the last words; Worker.Run waits for it
	}
	w.noteStopped(ctx)
	w.deadLog.close()
	w.delayLog.close()
	<-jobs.Stop().Done() // cron jobs end with ctx
	return err
}

// drain is Worker.Drain.
func (w *engine) drain(ctx context.Context) (Result, error) {
	total, err := w.drainRows(ctx)
	for swept := 1; swept > 0 && err == nil; {
		if swept, err = w.sweep(ctx); errors.Is(err, errSweptElsewhere) {
			err = nil
		}
	}
	if err != nil {
		return total, fmt.Errorf("drain: %w", err)
	}
	w.summariseAll(ctx, 0) // no scheduled task does, if no other worker runs
	return total, nil
}

// drainRows is Worker.DrainRows.
func (w *engine) drainRows(ctx context.Context) (Result, error) {
	defer w.deadLog.close()
	defer w.delayLog.close()
	var total Result
	pause, err := w.store.Paused(ctx)
	if err == nil {
		_, err = w.store.PollState(ctx) // for the database's clock
	}
	if err != nil {
		return total, err
	}
	if pause != nil {
		return total, fmt.Errorf("all workers are paused %s; see 'unstale resume'", pause)
	}
	w.paused.Store(false)
	if err := w.healAll(ctx); err != nil {
		return total, err
	}
	for _, l := range []*lane{w.hot, w.due} {
		for {
			if ctx.Err() != nil {
				return total, ctx.Err()
			}
			r, err := w.runBatch(ctx, turn{lane: l})
			if err == nil {
				err = w.heavyTurn(ctx, &r)
			}
			total.add(r)
			if err != nil {
				return total, err
			}
			if r.Claimed == 0 && !r.Full {
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
