package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
	"golang.org/x/sync/errgroup"
)

// A base has the fields that all parts of a worker share.
type base struct {
	maintenance.Deps
	cfg     Config
	maps    *mapFile
	metrics *metrics
}

// An engine is a worker with its connections open: it wires the services of a worker together. One
// goroutine each runs the loop, the sweeper, the prover, the wake-up, the heartbeats, the worker
// status in MySQL and that in Redis, the map's reload and the cron jobs.
type engine struct {
	base
	close func() error // the connections

	loop     loop
	healer   *maintenance.Healer
	sweeper  *maintenance.Sweeper
	spots    *maintenance.SpotChecker
	heart    *maintenance.HeartbeatSender
	shadows  *maintenance.ShadowChecker
	prover   prover
	presence presence
	status   redisStatus
	database databaseStatus

	failed    *rowLogs
	vanished  *vanished
	gauges    gaugeReader
	summaries summariser
	counting  counting
}

func newEngine(cfg Config, s *store.Store, redis maintenance.Redis, hashes *keyspace.StatusHashes, maps *mapFile, m *metrics, state *maintenance.State) *engine {
	warnDeprecated(cfg.Logger, maps.Map())
	state.Begin()
	e := &engine{failed: newRowLogs(cfg.Logger)}
	e.vanished = &vanished{log: cfg.Logger, dropped: vanishing{counts: m.maps.dropped}, undeclared: vanishing{counts: m.maps.undeclared}}
	b := &e.base
	*b = base{cfg: cfg, maps: maps, metrics: m, Deps: maintenance.Deps{
		Redis: measuredRedis{redis, m.redis, m}, Store: s, State: state, Channels: &publisher{&maps.routes, &e.presence},
		Lease: &maps.lease, Map: maps, Source: maintenance.NewOutboxID(s.Sessions), Log: cfg.Logger,
	}}
	maps.routes.attach(b.Redis, b.Log)

	var (
		limit   = s.Sessions.BatchLimit() // of one batch, from the claim to the commit
		seen    = store.NewSeen(s.Minutes)
		heavy   = &heavyRows{}
		spots   = &spotMetrics{m: m}
		refused = &deprecated{log: b.Log, maps: maps}
		own     = &record{base: b, deprecated: refused, heavy: heavy, spots: spots}
	)
	e.healer = maintenance.NewHealer(b.Deps, healMetrics{m})
	e.sweeper = maintenance.NewSweeper(b.Deps, m.sweep)
	e.spots = maintenance.NewSpotChecker(b.Deps, max(cfg.SpotChecks, 0), spots, spotRecords{s.Minutes, s.Stale, spots})
	e.heart = maintenance.NewHeartbeatSender(b.Deps, cfg.IdleInterval, m.heartbeats, m.heartbeat)
	e.shadows = maintenance.NewShadowChecker(b.Deps, cfg.JournalRetention, shadowMetrics{spots})
	e.prover = newProver(b, heavy)
	e.presence.record, e.status.record, e.status.hashes = own, own, hashes
	e.database = databaseStatus{base: b, hashes: hashes, settled: make(chan []store.Mark, maxSettled)}
	batches := &runner{
		base: b, limit: limit, deprecated: refused, known: &knownEntities{base: b}, spots: e.spots, seen: seen,
		failed: e.failed, vanished: e.vanished, database: &e.database,
	}
	e.loop = loop{base: b, limit: limit, lanes: newLanes(batches, heavy), healer: e.healer, sweeper: e.sweeper, database: &e.database}
	e.gauges = gaugeReader{base: b, seen: seen, unread: &unreadTables{log: b.Log, told: map[string]bool{}}}
	e.summaries.base, e.counting = b, counting{base: b, seen: seen}
	return e
}

// jobs returns the tasks of maintenance: the gauges, the journal's retention and its summaries, due
// times after the database's clock was set back, the retention of workers' notes, of stale entries
// and of the rows of locks, and the folding and the writing of minutes.
func (e *engine) jobs() []cronJob {
	clock, locks := &clockBack{base: &e.base}, &lockWalk{base: &e.base}
	return []cronJob{
		{e.cfg.GaugeSchedule, false, e.gauges.setGauges},
		{e.cfg.RetentionSchedule, true, e.expireJournal},
		{summarySchedule, true, e.summaries.summarize},
		{clockSchedule, true, clock.advanceRetries},
		{e.cfg.RetentionSchedule, true, e.forgetWorkers},
		{e.cfg.RetentionSchedule, true, e.trimStale},
		{e.cfg.RetentionSchedule, true, locks.expireLocks},
		{foldSchedule, true, e.counting.foldCounts},
		{seenSchedule, true, e.counting.writeSeen},
	}
}

// run works until ctx ends, then finishes the current batch.
func (e *engine) run(ctx context.Context) error {
	jobs, err := e.startCron(ctx, e.jobs())
	if err != nil {
		return err
	}
	if err := e.heart.Introduce(ctx); err != nil {
		e.Log.Debug("cannot say yet whose heartbeats these are", "error", err)
	}
	defer e.heart.Goodbye(ctx)
	tasks := []func(context.Context){
		e.loop.run, e.sweeper.Run, e.prover.watchRows, e.spots.Run, e.heart.Run, e.shadows.Run,
		e.presence.writeRecords, e.status.publishStatus, e.database.publishDatabase, e.watchFile,
	}
	if e.cfg.WakeChannel != noWake {
		tasks = append(tasks, e.wakeOnMessages)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range tasks {
		group.Go(func() error { run(ctx); return nil })
	}
	err = group.Wait()
	e.presence.stopped(ctx)
	e.failed.logRest()
	<-jobs.Stop().Done() // cron jobs end with ctx
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordLimit)
	defer cancel()
	if e.Store.Sessions.Hung() == nil {
		e.counting.writeSeen(last)
	}
	return err
}

// drain implements Worker.Drain.
func (e *engine) drain(ctx context.Context) (Result, error) {
	total, err := e.drainRows(ctx)
	for swept := 1; swept > 0 && err == nil; {
		if swept, err = e.sweeper.Sweep(ctx); errors.Is(err, maintenance.ErrElsewhere) {
			err = nil
		}
	}
	if err != nil {
		return total, fmt.Errorf("drain: %w", err)
	}
	e.summaries.all(ctx, 0) // no scheduled task does, if no other worker runs
	e.counting.writeSeen(ctx)
	return total, nil
}

// drainRows implements Worker.DrainRows.
func (e *engine) drainRows(ctx context.Context) (Result, error) {
	defer e.failed.logRest()
	return e.loop.drain(ctx)
}

// awaitPause is the wait between two looks at a MySQL that is not there yet.
const awaitPause = 500 * time.Millisecond

// await waits until MySQL answers, and returns what waiting cannot fix: a schema or a setting that
// does not fit, a password. A node that joins a group may get a schema that fits.
func await(ctx context.Context, s *session.Sessions, down func(error)) error {
	for {
		err := checkServer(ctx, s)
		if err == nil || (errors.Is(err, schema.Err) || session.IsRefusal(err)) && !s.IsJoining(ctx) {
			return err
		}
		down(err)
		if err := sleep.For(ctx, awaitPause); err != nil {
			return err
		}
	}
}

// checkServer asks MySQL whether it is fit for a worker.
func checkServer(ctx context.Context, s *session.Sessions) error {
	if err := s.Ping(ctx); err != nil {
		return err
	}
	if err := schema.Check(ctx, s.DB()); err != nil {
		return err
	}
	return s.Check(ctx)
}
