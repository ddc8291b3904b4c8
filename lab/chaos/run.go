package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// Run runs rounds until it has done everything that cfg asks for, an invalidation is lost, or ctx
// ends. The end of ctx ends the round cleanly. The error is the reason for a missing result;
// failures that a check found are in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dir, end, err := rig.Begin("chaos", &cfg.Seed, cfg.Progress)
	if err != nil {
		return nil, err
	}
	defer end()
	lasting := context.WithoutCancel(ctx)
	s, err := newStage(lasting, cfg, dir)
	if err != nil {
		return nil, fmt.Errorf("set the stage: %w", err)
	}
	defer func() { _ = s.close() }() // private servers
	if s.diskError != nil {
		fmt.Fprintf(cfg.Progress, "chaos: without the fault %q: %v\n", diskFull, s.diskError)
	}
	c, err := rig.New(cfg.Binary, dir, workerMap, s.workerEnv())
	if err != nil {
		return nil, err
	}
	defer c.KillAll()
	s.remap = c.Remap
	c.Each = func(n int) []string { return []string{"MYSQL_DSN=" + s.workerDSN(n)} }
	// through one node, not a proxy
	if _, err := c.Call(lasting, "migrate", "up", "--mysql-dsn", account+"@tcp("+s.mysql.Addr()+")/"+database); err != nil {
		return nil, err
	}
	if s.cluster != nil {
		if err := s.cluster.caughtUp(lasting); err != nil {
			return nil, err
		}
	}
	p := &play{cfg: cfg, stage: s, fleet: c, shop: newShop(s), began: time.Now()}
	p.schedule = newSchedule(cfg.Seed, s, c, &p.counts)
	p.report = Report{Seed: cfg.Seed, Servers: fmt.Sprintf("%s: %s %s and Redis %s",
		cfg.Topology, s.mysql.Flavor(), servers.ShortVersion(s.mysql.Version()), s.redis[0].Server.Version())}
	for range cfg.Workers {
		if err := c.Start(100); err != nil {
			return nil, err
		}
	}
	err = p.rounds(ctx)
	return p.sum(), err
}

// A play is one run.
type play struct {
	cfg      Config
	stage    *stage
	fleet    *rig.Fleet
	shop     *shop
	schedule *schedule
	counts   counts
	began    time.Time
	report   Report
}

func (p *play) rounds(ctx context.Context) error {
	for ctx.Err() == nil && len(p.report.Lost) == 0 && !p.enough() {
		if err := p.round(ctx); err != nil {
			return err
		}
		r := p.sum()
		fmt.Fprintf(p.cfg.Progress, "chaos: %s: %d transactions, %d proven, %d unproven, %d workers killed, %d faults, %d heals, %d lost; %s\n",
			r.Took.Round(time.Second), r.Transactions, r.Proven(), r.Unproven, r.WorkerKills, total(r.Faults), r.Heals, len(r.Lost), r.SpotChecks)
	}
	return nil
}

// enough reports whether all that was asked for has happened.
func (p *play) enough() bool {
	played := p.counts.played()
	for _, f := range p.stage.deck() {
		if played[f.name] < p.cfg.Decks {
			return false
		}
	}
	return p.report.Proven() >= p.cfg.Proven && int(p.counts.WorkerKills.Load()) >= p.cfg.Kills
}

// round lets the shop write while things break, repairs everything, and checks.
func (p *play) round(ctx context.Context) error {
	breaking, stop := context.WithTimeout(ctx, p.cfg.Round)
	defer stop()
	var streams errgroup.Group
	streams.Go(func() error { defer stop(); return p.schedule.disturbWorkers(breaking) })
	streams.Go(func() error { defer stop(); return p.schedule.disturbServers(breaking) })
	p.shop.write(breaking, p.cfg.Seed+uint64(p.report.Rounds), p.cfg.Writers)
	if err := streams.Wait(); err != nil {
		return err
	}
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*p.cfg.Patience)
	defer cancel()
	txs := p.shop.notes.take()
	j := judge{stage: p.stage, fleet: p.fleet, patience: p.cfg.Patience}
	v, err := j.judge(lasting, txs, p.stage.takeLosses())
	p.report.Rounds++
	p.report.Transactions += len(txs)
	p.report.Committed += v.committed
	p.report.RolledBack += v.rolledBack
	p.report.Unproven += v.unproven
	p.report.Dead += v.dead
	p.report.Lost = append(p.report.Lost, v.faults...)
	known := p.report.SpotChecks.Stale
	var spotErr error
	if p.report.SpotChecks, spotErr = p.fleet.SpotChecks(lasting, p.stage.db); p.report.SpotChecks.Stale > known {
		p.report.Lost = append(p.report.Lost, p.report.SpotChecks.Found...)
	}
	err = errors.Join(err, spotErr)
	return errors.Join(err, p.fleet.Alive())
}

// sum brings the report up to date.
func (p *play) sum() *Report {
	r := p.report
	r.Took = time.Since(p.began)
	r.WorkerKills, r.WorkerStops, r.WorkerFreezes = int(p.counts.WorkerKills.Load()), int(p.counts.WorkerStops.Load()), int(p.counts.WorkerFreezes.Load())
	r.Faults = p.counts.played()
	r.Heals = p.fleet.Said("redis has everything again")
	return &r
}

func total(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}
