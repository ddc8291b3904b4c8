package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/protocol"
	"golang.org/x/sync/errgroup"
)

// An engine is a worker with its connections open: it wires the services of a worker together. One
// goroutine each runs the loop, the sweeper, the prover, the wake-up, the heartbeats, the worker
// status in MySQL and that in Redis, the map's reload and the cron jobs.
type engine struct {
	cfg     Config
	log     *slog.Logger
	mysql   *session.Sessions
	close   func() error // the connections
	metrics *metrics
	health  *health
	signals *signals

	loop     loop
	healer   *maintenance.Healer
	sweeper  *maintenance.Sweeper
	spots    *maintenance.SpotChecker
	heart    *maintenance.HeartbeatSender
	wakes    wakeListener
	prover   prover
	presence presence
	status   redisStatus
	database databaseBoard
	watch    mapWatch
	shadows  *maintenance.ShadowChecker

	failed    *rowLogs
	vanished  *vanished
	gauges    gaugeReader
	clockBack clockBack
	summaries summariser
	expiry    expiry
	locks     lockWalk
	counting  counting
}

func newEngine(cfg Config, pools *store.Store, port redisPort, board *keyspace.Board, maps *mapFile, metrics *metrics, health *health) *engine {
	warnDeprecated(cfg.Logger, maps.Map())
	var (
		e = &engine{
			cfg: cfg, log: cfg.Logger, mysql: pools.Sessions, metrics: metrics, health: health, signals: newSignals(),
			failed: newRowLogs(cfg.Logger), vanished: newVanished(cfg.Logger, &metrics.maps),
		}
		redis   = measuredRedis{port, metrics.redis, metrics}
		limit   = pools.Sessions.BatchLimit() // of one batch, from the claim to the commit
		pulse   = maintenance.NewPulse()
		source  = maintenance.NewHeartbeatSource(pools.Sessions.Source)
		refused = &deprecated{log: e.log, maps: maps}
		news    = &publisher{&maps.routes, redis, e.presence.agree}
		heavy   = &heavyRows{}
		past    = &pastSteps{}
		spots   = &spotMetrics{m: metrics}
		own     = &record{
			id: pools.ID, name: cfg.Name, maps: maps, warning: refused.warning, health: health, pulse: pulse, past: past, heavy: heavy,
			uncounted: pools.Minutes.Refused, unchecked: spots.refused,
		}
		seen    = store.NewSeen(pools.Minutes)
		resting = func() bool { return e.signals.paused.Load() || health.inOutage() }
		healing = func() bool { return e.signals.lossSeen.Load() || pulse.Is(maintenance.ErrHealing) }
	)
	e.healer = maintenance.NewHealer(maintenance.HealConfig{
		Redis: redis, Journal: pools.Journal, Publish: news.publish, Metrics: healMetrics{metrics}, Log: e.log,
		Limit: limit, Healed: pulse.Heal, Turn: health.turn,
		Healing: func(lost bool) {
			pulse.Stop(map[bool]error{true: maintenance.ErrHealing, false: maintenance.ErrEmptied}[lost])
		},
	})
	e.sweeper = maintenance.NewSweeper(maintenance.SweepConfig{
		Requests: pools.Sweeps, Redis: redis, Publish: news.publish, Map: maps, Health: health, Metrics: sweepMetrics{metrics}, Log: e.log,
		Paused: e.signals.paused.Load, Hung: pools.Sessions.Hung, Lost: e.signals.lost,
		Lease: func(ctx context.Context) (time.Duration, error) {
			own, _ := maps.lease.now()
			return pools.Workers.LongestLease(ctx, own)
		},
	})
	e.spots = maintenance.NewSpotChecker(maintenance.SpotConfig{
		Redis: redis, Publish: news.publish, Metrics: spots, Log: e.log, Rate: max(cfg.SpotChecks, 0),
		Resting: health.inOutage, Healing: healing,
		Note: pools.Minutes.NoteChecks, Keep: staleKeeper{pools.Stale, spots}.keep,
	})
	e.prover = prover{
		proof: proof{limit: pools.Sessions.ClaimTimeout() + lateGrace},
		queue: pools.Queue, hung: pools.Sessions.Hung, workers: pools.Workers.Workers, health: health, metrics: metrics,
		heavy: heavy, self: own.id, heavyLimit: 2*heavyTimes*limit + lateGrace,
		resting: resting,
	}
	e.heart = maintenance.NewHeartbeat(maintenance.HeartbeatConfig{
		Redis: redis, Channels: maps.routes.numbered, Log: e.log,
		Idle: cfg.IdleInterval, Limit: limit,
		Lease:     maps.lease.forHeartbeats,
		Announced: func(lease time.Duration) { maps.lease.announced(&maps.lease.beats, lease, 0) },
		Proven:    e.prover.proven, LossSeen: e.signals.lossSeen.Load,
		Lost:  func(err error) { health.lost(err); e.signals.lost() },
		Count: metrics.heartbeats, Sends: metrics.heartbeat,
	}, source, pulse)
	e.shadows = maintenance.NewShadowChecker(maintenance.ShadowConfig{
		Redis: redis, Table: maintenance.NewShadowTable(pools.Sessions), Journal: pools.Journal, Note: pools.Minutes.NoteShadows, Log: e.log,
		Map: maps.Map, Proven: e.prover.proven, Retention: cfg.JournalRetention,
		Resting: resting, Healing: healing, Elsewhere: e.database.elsewhere, Unstored: spots.noDifferences.set,
		Count: func(r maintenance.ShadowResult) { metrics.shadows.WithLabelValues(string(r)).Inc() },
	})
	e.wakes = wakeListener{channel: cfg.WakeChannel, redis: redis, wake: e.signals.wake, subscribed: health.subscribed, count: metrics.wakes}
	maps.routes.redis, maps.routes.log, maps.routes.refused = redis, e.log, map[string]time.Time{}
	e.presence.record, e.presence.workers, e.presence.routes, e.presence.log = own, pools.Workers, &maps.routes, e.log
	e.status = redisStatus{record: own, source: source, maps: maps, epoch: redis.Epoch, log: e.log, board: board}
	e.database = databaseBoard{
		board: board, source: source, primary: pools.Sessions.Primary, maps: maps, log: e.log, metrics: metrics,
		settled: make(chan []store.Mark, maxSettled),
	}
	e.watch = mapWatch{maps: maps, log: e.log, metrics: metrics}
	batches := &runner{
		cfg: &e.cfg, limit: limit, maps: maps, lookups: pools.Lookups, deprecated: refused,
		known: &knownEntities{maps: maps, ask: pools.Journal.JournalEntities},
		spots: e.spots, seen: seen, now: pools.Queue.Now, redis: redis, publisher: news, pulse: pulse, metrics: metrics, age: pools.Queue.Age,
		failed: e.failed, vanished: e.vanished, journaled: e.database.journaled,
	}
	e.loop = loop{
		cfg: &e.cfg, limit: limit, queue: pools.Queue, paused: pools.Orders.Paused, hung: pools.Sessions.Hung, noReply: pools.Sessions.NoReply, first: e.database.first,
		lanes: newLanes(cfg.BatchRows, pools.Queue, heavy, batches.run), healer: e.healer, sweeper: e.sweeper,
		redis: redis, pulse: pulse, health: health, signals: e.signals, metrics: metrics, past: past,
	}
	e.gauges = gaugeReader{
		status: pools.Overview.StatusByTable, unread: newUnreadTables(e.log), inOutage: health.inOutage, metrics: metrics,
		seen: func(waiting int, oldest time.Duration) { seen.Look(pools.Queue.Now(time.Now()), waiting, oldest) },
	}
	e.clockBack = clockBack{queue: pools.Queue, sweeps: pools.Sweeps, inOutage: health.inOutage, log: e.log}
	e.summaries = summariser{summaries: pools.Summaries, inOutage: health.inOutage, log: e.log}
	e.expiry = expiry{retention: cfg.JournalRetention, journal: pools.Journal, summaries: pools.Summaries, workers: pools.Workers, stale: pools.Stale, log: e.log}
	e.locks = lockWalk{rows: pools.Locks, retention: cfg.LockRetention, inOutage: health.inOutage, metrics: metrics, log: e.log}
	e.counting = counting{minutes: pools.Minutes, seen: seen, inOutage: health.inOutage, log: e.log}
	return e
}

// jobs returns the tasks of maintenance: the gauges, the journal's retention and its summaries, due
// times after the database's clock was set back, the retention of workers' notes, of stale entries
// and of the rows of locks, and the folding and the writing of minutes.
func (e *engine) jobs() []cronJob {
	return []cronJob{
		{e.cfg.GaugeSchedule, false, e.gauges.read},
		{e.cfg.RetentionSchedule, true, e.expiry.expireJournal},
		{summarySchedule, true, e.summaries.run},
		{clockSchedule, true, e.clockBack.run},
		{e.cfg.RetentionSchedule, true, e.expiry.forgetWorkers},
		{e.cfg.RetentionSchedule, true, e.expiry.trimStale},
		{e.cfg.RetentionSchedule, true, e.locks.run},
		{foldSchedule, true, e.counting.run},
		{seenSchedule, true, e.counting.writeSeen},
	}
}

// run works until ctx ends, then finishes the current batch.
func (e *engine) run(ctx context.Context) error {
	jobs, err := startCron(ctx, e.log, e.mysql.Hung, e.jobs())
	if err != nil {
		return err
	}
	if err := e.heart.Introduce(ctx); err != nil {
		e.log.Debug("cannot say yet whose heartbeats these are", "error", err)
	}
	defer e.heart.Goodbye(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { e.loop.run(ctx); return nil })
	group.Go(func() error { e.sweeper.Run(ctx); return nil })
	group.Go(func() error { e.prover.run(ctx); return nil })
	group.Go(func() error { e.spots.Run(ctx); return nil })
	group.Go(func() error { e.heart.Run(ctx); return nil })
	group.Go(func() error { e.presence.run(ctx); return nil })
	group.Go(func() error { e.status.run(ctx); return nil })
	group.Go(func() error { e.database.run(ctx); return nil })
	group.Go(func() error { e.watch.run(ctx); return nil })
	group.Go(func() error { e.shadows.Run(ctx); return nil })
	if e.cfg.WakeChannel != noWake {
		group.Go(func() error { e.wakes.run(ctx); return nil })
	}
	err = group.Wait()
	e.presence.stopped(ctx)
	e.failed.close()
	<-jobs.Stop().Done() // cron jobs end with ctx
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordLimit)
	defer cancel()
	if e.mysql.Hung() == nil {
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
	defer e.failed.close()
	return e.loop.drain(ctx)
}

// A redisPort is the part of Redis that the worker uses: parts of a keyspace.Keyspace, or wrappers
// of tests that fail on demand. A service takes only the part that it calls.
type redisPort interface {
	beaconPort
	awayPort
	unlinkPort
	publishPort
	sweepPort
	setPort
	listenPort
	entryPort
	shadowPort
}

type beaconPort interface {
	CheckBeacon(ctx context.Context) (keyspace.Position, error)
	Survived(ctx context.Context, epochs []string) (map[string]uint64, error)
	ConfirmMoved(ctx context.Context, last map[string]uint64) error
}

type awayPort interface {
	Away() []string
}

type unlinkPort interface {
	Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error)
}

type publishPort interface {
	Publish(ctx context.Context, channel string, f protocol.Format, news keyspace.News) (keyspace.Published, error)
	Receivers() int64
	Introduce(source string, lease time.Duration)
	Beat(ctx context.Context, channel, moved, withheld string, asOf time.Time) error
	Goodbye(ctx context.Context, channel string) error
	Epoch(channel string) string
}

type sweepPort interface {
	Sweep(ctx context.Context, patterns []string, watch func(keyspace.Progress)) (keyspace.SweepResult, error)
}

type setPort interface {
	TakeSet(ctx context.Context, set string, id uint64, gone func(members []string) error) (keyspace.TakenSet, error)
	TakeSets(ctx context.Context, requests []keyspace.SetRequest, gone func(members []string) error) (keyspace.TakenSets, error)
}

type listenPort interface {
	Listen(ctx context.Context, channel string, l keyspace.Listener)
}

type entryPort interface {
	Look(ctx context.Context, asked []keyspace.Asked) ([]keyspace.Seen, []*keyspace.Master, error)
	Repair(ctx context.Context, key, head string, held bool) (bool, error)
}

type shadowPort interface {
	Shadows(ctx context.Context, after string) (reports []protocol.Shadow, last string, err error)
	EntryDigest(ctx context.Context, key string) (string, error)
}

// redisParts joins the parts of a Keyspace to a redisPort.
type redisParts struct {
	beaconPort
	awayPort
	unlinkPort
	publishPort
	sweepPort
	setPort
	listenPort
	entryPort
	shadowPort
}

func newRedisPort(k *keyspace.Keyspace) redisPort {
	return redisParts{k.Beacons, k.Shards, k.Unlinker, k.Publisher, k.Sweeper, k.Sets, k.Subscriber, k.Entries, k.Contents}
}

// signals pass the state of one goroutine of a worker to the others. Safe for concurrent use.
type signals struct {
	wake     chan struct{} // rows were committed; capacity 1, sent to without waiting
	lossSeen atomic.Bool   // another goroutine than the loop has found a loss, which the loop heals
	// the loop has found that an operator paused all workers, or has not looked yet
	paused atomic.Bool
}

// newSignals returns signals that count as paused until the loop, or drain, has looked.
func newSignals() *signals {
	s := &signals{wake: make(chan struct{}, 1)}
	s.paused.Store(true)
	return s
}

// lost makes the loop heal a loss now.
func (s *signals) lost() {
	s.lossSeen.Store(true)
	notify(s.wake)
}

// notify leaves a signal unless one waits already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// awaitPause is the wait between two looks at a MySQL that is not there yet.
const awaitPause = 500 * time.Millisecond

// await waits until MySQL answers, and returns what waiting cannot fix: a schema or a setting that
// does not fit, a password. A node that joins a group may get a schema that fits.
func await(ctx context.Context, s *session.Sessions, down func(error)) error {
	for {
		err := check(ctx, s)
		if err == nil || (errors.Is(err, schema.Err) || session.IsRefusal(err)) && !s.IsJoining(ctx) {
			return err
		}
		down(err)
		if err := sleep.For(ctx, awaitPause); err != nil {
			return err
		}
	}
}

// check asks MySQL whether it is fit for a worker.
func check(ctx context.Context, s *session.Sessions) error {
	if err := s.Ping(ctx); err != nil {
		return err
	}
	if err := schema.Check(ctx, s.DB()); err != nil {
		return err
	}
	return s.Check(ctx)
}
