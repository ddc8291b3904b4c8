package demo

import (
	"context"
	"fmt"
	"time"
)

// A player runs the scenario and checks its results. One goroutine owns it.
type player struct {
	demo     *Demo
	report   *Report
	waiting  []*round        // rolled back, and checked with the next committed change
	expected map[string]bool // full names that a committed change so far made stale
	// keys that a pattern of an earlier round covers, with the commit time of the first such round
	swept    map[string]time.Time
	lastDead uint64 // id of the last dead letter that was reported
}

// A round is one change in progress.
type round struct {
	change    change
	targets   []target
	result    *Change
	committed time.Time
	heard     map[string]bool // full names
}

// Play runs the scenario. The report is never nil, and covers the run until an error. Unexpected
// results are in its faults, not in the error. Play may be called once.
func (d *Demo) Play(ctx context.Context) (*Report, error) {
	began := time.Now()
	m := d.m
	p := &player{demo: d, expected: map[string]bool{}, swept: map[string]time.Time{}, report: &Report{
		MySQL: d.versions[0], Redis: d.versions[1], Map: d.cfg.MapFile, MapVersion: m.Version(),
		Prefix: string(d.names), Keys: len(d.cache.keys),
		Readers: []Readers{}, Tills: []Tills{}, Changes: make([]Change, len(scenario)), Faults: []string{},
	}}
	err := p.play(ctx)
	p.report.OK = err == nil && len(p.report.Faults) == 0
	p.report.Seconds = time.Since(began).Seconds()
	return p.report, err
}

func (p *player) play(ctx context.Context) error {
	if err := (readerScenes{p}).raceReaders(ctx); err != nil {
		p.report.Changes = p.report.Changes[:0]
		return err
	}
	if err := p.raceTills(ctx); err != nil {
		p.report.Changes = p.report.Changes[:0]
		return err
	}
	for i, c := range scenario {
		r, err := p.prepare(c, &p.report.Changes[i])
		if err != nil {
			return err
		}
		if err := p.round(ctx, r); err != nil {
			p.report.Changes = p.report.Changes[:i+1]
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return p.compare(ctx)
}

// prepare resolves what the change makes stale.
func (p *player) prepare(c change, result *Change) (*round, error) {
	targets, err := targets(p.demo.names, c, p.demo.cache.keys)
	if err != nil {
		return nil, err
	}
	*result = Change{Name: c.name, PlainSQL: c.plainSQL, RolledBack: c.rollback}
	for _, t := range targets {
		result.Targets = append(result.Targets, Target{
			Name: p.demo.names.short(t.name), Pattern: t.pattern, Keys: len(t.keys), Left: len(t.keys),
		})
	}
	return &round{change: c, targets: targets, result: result, heard: map[string]bool{}}, nil
}

// round runs one change. After a rollback, nothing is filled or checked until a later change is
// complete: only then do existing keys prove that the rollback deleted none.
func (p *player) round(ctx context.Context, r *round) error {
	if len(p.waiting) == 0 {
		if _, err := p.demo.cache.fill(ctx, true); err != nil {
			return err
		}
	}
	if err := p.demo.shop.transact(ctx, r.change); err != nil {
		return err
	}
	r.committed = time.Now()
	if r.change.rollback {
		p.waiting = append(p.waiting, r)
		return nil
	}
	for _, t := range r.targets {
		p.expected[t.name] = true
	}
	if err := p.seeThrough(ctx, r); err != nil {
		return err
	}
	if err := p.judge(ctx, r); err != nil {
		return err
	}
	p.waiting = nil
	return nil
}
