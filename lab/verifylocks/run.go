package verifylocks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/lab/rig"
)

// A play is one run.
type play struct {
	cfg    Config
	stage  *stage
	dir    string
	began  time.Time
	report Report
}

// Run runs the phases in turns until enough guarded sections are committed or ctx ends. The end of
// ctx ends the turn cleanly. The error is the reason for a missing result; lost updates are in the
// report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dir, end, err := rig.Begin("verify-locks", &cfg.Seed, cfg.Progress)
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
	p.report = Report{Seed: cfg.Seed, HolderClocks: clock.Overlaid(), Plant: cfg.Plant, Servers: s.versions()}
	err = p.turns(ctx)
	p.report.Took = time.Since(p.began)
	p.report.Interrupted = ctx.Err() != nil
	return &p.report, err
}

// turns runs one turn after another.
func (p *play) turns(ctx context.Context) error {
	for number, round := 1, 1; ; round++ {
		for _, ph := range p.cfg.played() {
			enough, blind := p.report.played(p.cfg.Phases) && p.report.Guarded() >= int64(p.cfg.Sections), p.report.Blind()
			if ctx.Err() != nil || enough && (round > p.cfg.Rounds || len(blind) == 0) || p.cfg.UntilFound && p.report.Wrong() > 0 {
				return nil
			}
			if enough && (ph.keeps || len(ph.in(blind)) == 0) {
				continue // what is missing is a loss of bare sections, and it would not bring that
			}
			into := p.report.result(ph, ph.in(p.cfg.Backends))
			before := slices.Clone(into.Lanes)
			err := p.turn(ctx, ph, number, into)
			fmt.Fprintf(p.cfg.Progress, "verify-locks: %s: %s: %s; guarded so far %d\n",
				time.Since(p.began).Round(time.Second), ph.Name, into.since(before), p.report.Guarded())
			if err != nil {
				return err
			}
			number++
		}
	}
}
