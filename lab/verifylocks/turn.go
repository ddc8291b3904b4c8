package verifylocks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/clock"
)

// patience is how long holders may take to begin, or to end, on a machine that has much else to do.
const patience = 3 * time.Minute

// A turn is one run of a phase, with its own holders and counters.
type turn struct {
	phase Phase
	stage *stage
	dice  *rand.Rand
	crowd crowd
	after int64 // the last row of the ledger before it
	plays int   // how often something broke
}

// turn runs a phase once, for a time, and adds its figures to the result. The end of ctx ends it
// early and cleanly.
func (p *play) turn(ctx context.Context, ph Phase, number int, into *Result) (err error) {
	lasting := context.WithoutCancel(ctx)
	t := &turn{phase: ph, stage: p.stage, dice: rand.New(rand.NewPCG(p.cfg.Seed, uint64(number)<<8))}
	t.crowd = crowd{command: p.cfg.Holder, dir: p.dir, jumps: ph.jumps && clock.Overlaid(), spec: spec{
		Turn: number, Seed: p.cfg.Seed + uint64(number), Backends: ph.in(p.cfg.Backends), TTL: p.cfg.TTL, Plant: p.cfg.Plant,
	}}
	if err := p.stage.tell(&t.crowd.spec, ph); err != nil {
		return err
	}
	if ph.cut {
		t.crowd.first = p.stage.linked()
	}
	if t.after, err = p.stage.rows(lasting, number); err != nil {
		return err
	}
	if err := t.run(ctx, p.cfg); err != nil {
		return err
	}
	return t.judge(lasting, into)
}

// run has the holders work, and breaks things for a time.
func (t *turn) run(ctx context.Context, cfg Config) (err error) {
	defer func() { err = errors.Join(err, t.crowd.stop()) }()
	for range cfg.Holders {
		if err := t.crowd.start(); err != nil {
			return err
		}
	}
	if err := t.warm(ctx); err != nil {
		return err
	}
	for end := time.Now().Add(cfg.Turn); ctx.Err() == nil && time.Now().Before(end); {
		if t.phase.play == nil {
			sleep(ctx, time.Until(end))
			continue
		}
		if err := t.play(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		t.plays++
	}
	return nil
}

// warm returns when sections of each lane that runs were committed, which may take a while on a
// busy machine.
func (t *turn) warm(ctx context.Context) error {
	for limit := time.Now().Add(patience); ctx.Err() == nil; sleep(ctx, told/2) {
		missing := t.crowd.spec.lanes()
		for _, p := range t.crowd.living {
			told := p.soFar()
			missing = slices.DeleteFunc(missing, func(i int) bool { return told[i].Done > 0 })
		}
		if len(missing) == 0 {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("no section is committed within %s although nothing is broken: %s", patience, lanes[missing[0]])
		}
	}
	return nil
}

// play runs the fault of the phase with a deadline.
func (t *turn) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := t.phase.play(ctx, t); err != nil {
		return fmt.Errorf("%s: %w", t.phase.Name, err)
	}
	return nil
}
