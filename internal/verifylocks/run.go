package verifylocks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/clock"
	"github.com/unstale/unstale/internal/fleet"
)

// A play is one run.
type play struct {
	cfg    Config
	stage  *stage
	dir    string
	began  time.Time
	report Report
}

// Run plays the phases by turns until enough guarded sections are committed, or ctx ends, which ends the turn in order. The
// error is what kept it from a verdict; what does not add up is in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Seed == 0 {
		cfg.Seed = 1 + rand.Uint64N(1<<32)
	}
	fmt.Fprintf(cfg.Progress, "verify-locks: seed %d\n", cfg.Seed)
	redis.SetLogger(fleet.Silence{}) // errors are expected
	dir, err := os.MkdirTemp("", "unstale-locks-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
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

// turns plays one turn after another.
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
