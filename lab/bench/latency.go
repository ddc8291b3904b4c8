package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const (
	// connections of the application; a COMMIT that takes 30 ms then delays no other
	latencyHands = 16
	latencyWarm  = 250 // commits of a trial that are not counted, at most
	latencyProbe = 200 // bare commits and PINGs of a run
)

// A trial is one way to serve the commits of an application.
type trial struct {
	name    string
	ours    bool          // else the floor
	wake    bool          // the application publishes a hint after each commit
	every   time.Duration // between two commits
	commits int           // that are counted in a run
	pooled  bool          // too few in a run for percentiles: those of all runs count together
}

// trials are in the order of their rounds. At 500 commits/s a polling worker is never idle. So the
// wait of a quiet outbox shows in commits that come alone, at times that are independent of the
// poll.
var trials = []trial{
	{name: "floor_wake", wake: true, every: 2 * time.Millisecond, commits: 3000},
	{name: "ours_wake", ours: true, wake: true, every: 2 * time.Millisecond, commits: 3000},
	{name: "floor_poll", every: 2 * time.Millisecond, commits: 3000},
	{name: "ours_poll", ours: true, every: 2 * time.Millisecond, commits: 3000},
	{name: "floor_wake_alone", wake: true, every: 87 * time.Millisecond, commits: 30, pooled: true},
	{name: "ours_wake_alone", ours: true, wake: true, every: 87 * time.Millisecond, commits: 30, pooled: true},
	{name: "ours_poll_alone", ours: true, every: 213 * time.Millisecond, commits: 25, pooled: true},
}

// A latencyBench is the mode under way.
type latencyBench struct {
	cfg  Config
	shop *shop
	app  *sql.DB // the application's connections
	at   *timestamps
	next int // commit

	rates, late []float64                // of the trials at full rate: commits/s, percent
	sinceReply  map[string][]percentiles // by trial, a run each; or one of all runs
	sinceSent   map[string][]percentiles
	pooled      map[string][]float64 // by trial, microseconds since the reply
	commit      []float64            // microseconds of a bare one
	ping        []float64
}

// latency measures the time from a commit to the UNLINK of its key, at 500 commits per second of
// one row each.
//
// The clock starts when the application has the reply to its COMMIT. It ends when the worker has
// the reply to the UNLINK. The report also has the time since COMMIT was sent. With a wake-up, the
// application then publishes the hint as the README says.
func latency(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b := &latencyBench{cfg: cfg, shop: s, sinceReply: map[string][]percentiles{}, sinceSent: map[string][]percentiles{}, pooled: map[string][]float64{}}
	commits := 0
	for _, t := range trials {
		commits += cfg.Runs * (b.scaled(t.commits) + b.warm(t))
	}
	b.at = newTimestamps(commits)
	s.AddHook(b.at)
	if b.app, err = (writer{s}).application(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.app.Close()) }()
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", run+1, cfg.Runs)
		if err := b.probe(ctx); err != nil {
			return nil, err
		}
		for _, t := range trials {
			if err := b.try(ctx, t); err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	return b.report(), nil
}

func (b *latencyBench) scaled(n int) int { return max(n/b.cfg.Scale, 5) }

// warm returns how many commits of a trial open connections and end waits, and are not counted.
func (b *latencyBench) warm(t trial) int { return b.scaled(min(t.commits/6, latencyWarm)) }

// try runs a trial once.
func (b *latencyBench) try(ctx context.Context, t trial) (err error) {
	serve := (floorShop{b.shop}).serve
	if t.ours {
		serve = b.shop.serve
	}
	stop, err := serve(ctx, b.at, t.wake)
	if err != nil {
		return err
	}
	first := b.next
	counted := first + b.warm(t)
	end := counted + b.scaled(t.commits)
	b.next = end
	began := time.Now()
	late, err := paced(ctx, t.every, end-first, latencyHands, func(ctx context.Context, i int) error { return b.transact(ctx, first+i, t.wake) })
	took := time.Since(began)
	if err == nil {
		err = b.at.await(ctx, first, end)
	}
	if err := errors.Join(err, stop(), b.shop.isEmpty(ctx)); err != nil {
		return err
	}
	reply, sent := b.at.latencies(counted, end)
	if t.pooled {
		b.pooled[t.name] = append(b.pooled[t.name], reply...)
		return nil
	}
	b.sinceReply[t.name] = append(b.sinceReply[t.name], percentilesOf(reply))
	b.sinceSent[t.name] = append(b.sinceSent[t.name], percentilesOf(sent))
	b.rates = append(b.rates, float64(end-first)/took.Seconds())
	b.late = append(b.late, 100*lateShare(late, t.every))
	return nil
}

// lateShare returns the share of what began when the next one was due already, or later.
func lateShare(late []time.Duration, every time.Duration) float64 {
	n := 0
	for _, by := range late {
		if by >= every {
			n++
		}
	}
	return float64(n) / float64(len(late))
}

// transact runs a transaction of the application and publishes its hint.
func (b *latencyBench) transact(ctx context.Context, i int, wake bool) error {
	tx, err := b.app.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	entity, id, _ := coupon(i)
	if err := outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: entity, ID: id}); err != nil {
		return err
	}
	b.at.of[i].sent.Store(b.at.now())
	if err := tx.Commit(); err != nil {
		return err
	}
	b.at.of[i].committed.Store(b.at.now())
	return (writer{b.shop}).hint(ctx, wake)
}

// probe measures what neither can go below: a COMMIT of one changed row by itself, and a round trip
// to Redis.
func (b *latencyBench) probe(ctx context.Context) error {
	for i := range b.scaled(latencyProbe) {
		tx, err := b.app.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE products SET price_cents = price_cents + 1 WHERE id = ?", i%1000+1); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		commit, err := timed(tx.Commit)
		if err != nil {
			return err
		}
		ping, err := timed(func() error { return b.shop.Ping(ctx).Err() })
		if err != nil {
			return err
		}
		b.commit, b.ping = append(b.commit, 1e6*commit), append(b.ping, 1e6*ping)
	}
	return nil
}

func (b *latencyBench) report() *Report {
	details := map[string]any{
		"commits_per_s": median(b.rates), "late_percent": median(b.late), "late_percent_at_worst": slices.Max(b.late),
		"idle_interval_us": worker.Config{}.WithDefaults().IdleInterval.Microseconds(),
		"bare_commit_us":   percentilesOf(b.commit), "ping_us": percentilesOf(b.ping),
	}
	for name, runs := range b.sinceReply {
		details[name+"_us"] = medianOf(runs)
		details[name+"_since_sent_us"] = medianOf(b.sinceSent[name])
	}
	for name, micros := range b.pooled {
		details[name+"_us"] = percentilesOf(micros)
	}
	return &Report{
		Ours: medianOf(b.sinceReply["ours_wake"]).P99, Floor: medianOf(b.sinceReply["floor_wake"]).P99, Unit: "us",
		Machine: b.shop.machine(), Details: details,
	}
}
