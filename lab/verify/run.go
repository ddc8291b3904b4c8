package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// spotNote is longer than workers keep the results of spot checks before they write them.
const spotNote = 3 * time.Second

// A play is one run.
type play struct {
	cfg    Config
	stage  *stage
	dir    string
	began  time.Time
	report Report
}

// Run runs the phases in turns until the time has passed or ctx ends. The end of ctx ends the turn
// cleanly. The error is the reason for a missing measurement; violations are in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dir, end, err := rig.Begin("verify", &cfg.Seed, cfg.Progress)
	if err != nil {
		return nil, err
	}
	defer end()
	s, err := newStage(context.WithoutCancel(ctx), cfg, dir)
	if err != nil {
		return nil, fmt.Errorf("set the stage: %w", err)
	}
	defer func() { _ = s.close() }() // private servers
	p := &play{cfg: cfg, stage: s, dir: dir, began: time.Now()}
	p.report = Report{Seed: cfg.Seed, Plant: cfg.Plant, Servers: fmt.Sprintf("%s %s and Redis %s",
		s.mysql.Flavor(), servers.ShortVersion(s.mysql.Version()), s.version())}
	err = p.turns(ctx)
	err = errors.Join(err, p.countSpotChecks(context.WithoutCancel(ctx)))
	p.report.Took = time.Since(p.began)
	p.report.Interrupted = ctx.Err() != nil
	return &p.report, err
}

// countSpotChecks adds the results of the spot checks and of the last shadow reads. A worker writes
// them every few seconds.
func (p *play) countSpotChecks(ctx context.Context) (err error) {
	if p.cfg.UntilStale || p.cfg.Plant == "" {
		sleep(ctx, 2*spotNote)
	}
	if p.report.SpotChecks, err = p.stage.fleet.SpotChecks(ctx, p.stage.db); err == nil {
		p.report.Differences, err = p.stage.differences(ctx)
	}
	return err
}

// turns runs one turn after another.
func (p *play) turns(ctx context.Context) error {
	for number := 1; ; {
		for _, ph := range phases {
			if !slices.Contains(p.cfg.Phases, ph.name) {
				continue
			}
			over := time.Since(p.began) >= p.cfg.For && p.report.played(p.cfg.Phases)
			if ctx.Err() != nil || over || p.cfg.UntilFound && p.report.Violations() > 0 || p.cfg.UntilStale && p.stage.fleet.FoundStale() || len(p.report.Differences) > 0 {
				return nil
			}
			into := p.report.result(ph)
			before := *into
			err := p.turn(ctx, ph, number, p.cfg.Turn*time.Duration(max(ph.times, 1)), into)
			if err == nil {
				p.report.Differences, err = p.stage.differences(context.WithoutCancel(ctx))
			}
			fmt.Fprintf(p.cfg.Progress, "verify: %s: %s: %s\n", time.Since(p.began).Round(time.Second), ph.name, into.since(before))
			if into.Violations > before.Violations && p.cfg.Plant == "" {
				fmt.Fprintf(p.cfg.Progress, "verify: the workers' logs end with\n%s", p.stage.fleet.Tails())
			}
			if err != nil {
				return err
			}
			number++
		}
	}
}
