package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const (
	// of each trial per run; a slow phase of the machine then affects all trials
	costTurns    = 3
	costTime     = 2 * time.Second        // of a trial, that is counted
	costCommits  = 60                     // at least, at a low rate
	costWarm     = 300 * time.Millisecond // that is not
	costOfReport = 100                    // commits per second; the report shows their ratio
)

// costRates are in commits per second.
var costRates = []int{20, 100, 500}

// A service is one way to have commits processed, or none.
type service struct {
	name   string
	worker *worker.Config // nil: no worker
	floor  bool           // the floor, in the place of workers
	hints  bool           // the application publishes one after each commit
}

var services = []service{
	{name: "none"},
	{name: "poll", worker: &worker.Config{WakeChannel: "-"}},
	{name: "floor_poll", floor: true},
	{name: "hints", worker: &worker.Config{}, hints: true},
	{name: "floor_hints", floor: true, hints: true},
	{name: "hints_10ms", worker: &worker.Config{WakeInterval: 10 * time.Millisecond}, hints: true},
}

// A cost is the cost of one commit.
type cost struct {
	MySQL float64 `json:"mysql_ms"` // of processor time
	// of that to the same without a worker, in the same turn
	Ratio float64 `json:"ratio"`
	Redis float64 `json:"redis_ms"` // of processor time
	// of processor time: what this process uses more than without one
	Worker      float64     `json:"worker_ms"`
	LogSyncs    float64     `json:"log_syncs"`
	BinlogSyncs float64     `json:"binlog_syncs"`
	Statements  float64     `json:"statements"` // including the application's
	Latency     percentiles `json:"latency_us"` // to the UNLINK
}

func (c cost) String() string {
	text := fmt.Sprintf("mysql %.3f ms (%.2f), redis %.3f, worker %.3f; flushes %.2f + %.2f binlog; %.1f statements",
		c.MySQL, c.Ratio, c.Redis, c.Worker, c.LogSyncs, c.BinlogSyncs, c.Statements)
	if c.Latency.N > 0 {
		text += "; us " + c.Latency.String()
	}
	return text
}

// A costBench is the mode under way.
type costBench struct {
	cfg   Config
	shop  *shop
	books *accountant
	app   *sql.DB
	at    *timestamps
	next  int               // commit
	runs  map[string][]cost // by trial
}

// costs measures what a transaction of an application (an UPDATE and the INSERT of a row) costs the
// servers and the worker, in processor time and log flushes. It does so at low and middling rates,
// and compares with the same transactions without a worker.
func costs(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b := &costBench{cfg: cfg, shop: s, at: newTimestamps(costTotal(cfg)), runs: map[string][]cost{}}
	if b.books, err = newAccountant(ctx, s); err != nil {
		return nil, err
	}
	if b.app, err = (writer{s}).application(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.app.Close()) }()
	s.AddHook(b.at) // the floor uses this client
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", run+1, cfg.Runs)
		for _, rate := range costRates {
			for range costTurns {
				if err := b.round(ctx, rate); err != nil {
					return nil, err
				}
			}
		}
	}
	return b.report(), nil
}

// none reports whether nothing processes the commits.
func (s service) none() bool { return s.worker == nil && !s.floor }

// commitsAt returns how many commits of a trial are counted, and how many come before them.
func commitsAt(cfg Config, rate int) (warm, counted int) {
	counted = max(int(float64(rate)*costTime.Seconds()), costCommits)
	return max(int(float64(rate)*costWarm.Seconds())/cfg.Scale, 2), max(counted/cfg.Scale, rate/2)
}

// costTotal returns how many commits there are in all trials.
func costTotal(cfg Config) (n int) {
	for _, rate := range costRates {
		warm, counted := commitsAt(cfg, rate)
		n += cfg.Runs * costTurns * len(services) * (warm + counted)
	}
	return n
}

// round lets each service process commits at a rate.
func (b *costBench) round(ctx context.Context, rate int) error {
	var none cost
	for _, s := range services {
		c, err := b.try(ctx, s, rate)
		if err != nil {
			return fmt.Errorf("%s, %d/s: %w", s.name, rate, err)
		}
		if s.none() {
			none = c
		}
		c.Worker -= none.Worker
		if none.MySQL > 0 { // a few commits may be less than the clock can tell
			c.Ratio = c.MySQL / none.MySQL
		}
		name := trialName(s, rate)
		b.runs[name] = append(b.runs[name], c)
	}
	return nil
}

func trialName(s service, rate int) string { return fmt.Sprintf("%03d_%s", rate, s.name) }

// try runs a trial once.
func (b *costBench) try(ctx context.Context, s service, rate int) (c cost, err error) {
	stop, err := b.start(ctx, s)
	if err != nil {
		return c, errors.Join(err, stop())
	}
	warm, counted := commitsAt(b.cfg, rate)
	first := b.next + warm
	end := first + counted
	err = b.commits(ctx, s, rate, b.next, first)
	if err == nil {
		c, err = b.measure(ctx, s, rate, first, end)
	}
	b.next = end
	err = errors.Join(err, stop())
	if err != nil {
		return c, err
	}
	if s.none() {
		_, err = b.shop.db.ExecContext(ctx, "DELETE FROM cache_outbox")
		return c, err
	}
	reply, _ := b.at.latencies(first, end)
	c.Latency = percentilesOf(reply)
	return c, b.shop.isEmpty(ctx)
}

// start runs workers until the caller calls the returned function. It does so after an error too.
func (b *costBench) start(ctx context.Context, s service) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, stop := range stops {
			errs = append(errs, stop())
		}
		return errors.Join(errs...)
	}
	if s.floor {
		stopFloor, err := floorShop{b.shop}.serve(ctx, b.at, s.hints)
		if err == nil {
			stops = append(stops, stopFloor)
		}
		return stop, err
	}
	for n := 0; s.worker != nil && n < b.cfg.Workers; n++ {
		stopOne, err := b.shop.serveWith(ctx, fmt.Sprintf("server-%d", n), b.at, *s.worker)
		if err != nil {
			return stop, err
		}
		stops = append(stops, stopOne)
	}
	return stop, nil
}

// measure makes the commits from one number to before another, and returns the cost of one when all
// are processed. The field Worker is the use of this process.
func (b *costBench) measure(ctx context.Context, s service, rate, from, to int) (cost, error) {
	before, err := b.books.read(ctx)
	if err != nil {
		return cost{}, err
	}
	if err := b.commits(ctx, s, rate, from, to); err != nil {
		return cost{}, err
	}
	after, err := b.books.read(ctx)
	if err != nil {
		return cost{}, err
	}
	used, n := after.since(before), float64(to-from)
	return cost{
		MySQL: 1e3 * used.mysql / n, Redis: 1e3 * used.redis / n, Worker: 1e3 * used.self / n,
		LogSyncs: float64(used.logSyncs) / n, BinlogSyncs: float64(used.binlogSyncs) / n, Statements: float64(used.statements) / n,
	}, nil
}

// commits makes commits at a rate and waits until they are processed.
func (b *costBench) commits(ctx context.Context, s service, rate, from, to int) error {
	_, err := paced(ctx, time.Second/time.Duration(rate), to-from, latencyHands, func(ctx context.Context, i int) error {
		return b.transact(ctx, from+i, s.hints)
	})
	if err != nil || s.none() {
		return err
	}
	return b.at.await(ctx, from, to)
}

// transact runs a transaction of the application and publishes its hint.
func (b *costBench) transact(ctx context.Context, i int, hint bool) error {
	tx, err := b.app.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	if _, err := tx.ExecContext(ctx, "UPDATE products SET price_cents = price_cents + 1 WHERE id = ?", i%1000+1); err != nil {
		return err
	}
	entity, id, _ := coupon(i)
	if err := outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: entity, ID: id}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	b.at.of[i].committed.Store(b.at.now())
	return (writer{b.shop}).hint(ctx, hint)
}

func (b *costBench) report() *Report {
	details := map[string]any{}
	for name, runs := range b.runs {
		details[name] = medianCost(runs)
	}
	at := func(s service) float64 { return details[trialName(s, costOfReport)].(cost).MySQL }
	return &Report{Ours: at(services[1]), Floor: at(services[0]), Unit: "ms of MySQL", Machine: b.shop.machine(), Details: details}
}

// medianCost returns the median of each figure over runs.
func medianCost(runs []cost) cost {
	of := func(figure func(cost) float64) float64 {
		var list []float64
		for _, c := range runs {
			list = append(list, figure(c))
		}
		return median(list)
	}
	var latencies []percentiles
	for _, c := range runs {
		latencies = append(latencies, c.Latency)
	}
	return cost{
		MySQL: of(func(c cost) float64 { return c.MySQL }), Ratio: of(func(c cost) float64 { return c.Ratio }),
		Redis: of(func(c cost) float64 { return c.Redis }), Worker: of(func(c cost) float64 { return c.Worker }),
		LogSyncs: of(func(c cost) float64 { return c.LogSyncs }), BinlogSyncs: of(func(c cost) float64 { return c.BinlogSyncs }),
		Statements: of(func(c cost) float64 { return c.Statements }), Latency: medianOf(latencies),
	}
}
