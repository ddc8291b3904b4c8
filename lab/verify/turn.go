package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/unstale/unstale/lab/rig"
)

const (
	writersAtOnce = 8
	turnIDs       = 10_000 // rows of a turn at most
	shadowRate    = 20     // shadow reads per second of each reader
	warmUp        = 300 * time.Millisecond
	shadowEnd     = 20 * time.Second       // of the shadow reads of the last entries
	afterAll      = 500 * time.Millisecond // beyond the bound, after the last write
)

// A turn is one run of a phase, with its own keys, readers and table.
type turn struct {
	phase  phase
	stage  *stage
	spec   spec
	table  *table
	dice   *rand.Rand
	crowd  crowd
	w      writers
	births *registrar
	stalls stallWatch
	faults int       // that were injected
	wrongs []finding // of the turn itself
}

// turn runs a phase once, for a time, and adds its figures to the result. The end of ctx ends it
// early and cleanly.
func (p *play) turn(ctx context.Context, ph phase, number int, length time.Duration, into *Result) (err error) {
	lasting := context.WithoutCancel(ctx)
	t := &turn{phase: ph, stage: p.stage, dice: rand.New(rand.NewPCG(p.cfg.Seed, uint64(number)<<8))}
	reads, writes := p.cfg.Reads, p.cfg.Writes
	if ph.light {
		reads, writes = max(reads/4, 1), max(writes/4, 1)
	}
	t.spec = spec{
		Seed: p.cfg.Seed + uint64(number), Table: filepath.Join(p.dir, fmt.Sprint("table-", number)), Keys: p.cfg.Keys, First: number * turnIDs,
		Kinds: ph.kinds, MySQL: rig.DSN(p.stage.mysql, database), MySQLURL: "mysql://unstale:verify@" + p.stage.mysql.Addr() + "/" + database,
		Sources: p.stage.sources, TTL: ph.ttl, Grace: ph.grace, DB: ph.database,
		Reads: max(reads/p.cfg.processes(), 1), Stock: ph.stock, Astray: ph.astray, Plant: p.cfg.Plant, RawValues: p.cfg.RawValues,
	}
	switch {
	case p.cfg.UntilDiffers:
		t.spec.ShadowRate = 1000
	case p.cfg.Plant == "" && !ph.astray:
		t.spec.ShadowRate = shadowRate
	}
	if p.stage.cluster != nil {
		t.spec.Cluster = p.stage.cluster.Addrs()
	} else {
		t.spec.Redis = p.stage.redis.Server.Addr()
	}
	if ph.parted {
		t.spec.Subscriber = p.stage.toHear.Addr()
	}
	if ph.through {
		t.spec.Redis = p.stage.toRedis.Addr()
		if err = p.stage.lead(lasting, t.spec.Redis); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.stage.lead(lasting, p.stage.redis.Server.Addr())) }()
	}
	if ph.surviving {
		t.spec.Master = filepath.Join(p.dir, "master")
		if err := t.pointReaders(); err != nil {
			return err
		}
	}
	t.births = newRegistrar(t)
	if t.table, err = newTable(t.spec.Table, t.spec.Keys); err != nil {
		return err
	}
	defer func() {
		_ = t.table.close()
		_ = os.Remove(t.spec.Table)
	}()
	if err := t.stage.rows(lasting, t.spec.First, t.spec.Keys); err != nil {
		return err
	}
	t.w = writers{
		spec: &t.spec, tell: t.crowd.tell, table: t.table, db: t.stage.db, wakes: t.stage.client, bound: ph.bound,
		number: writersAtOnce, pace: time.Second * writersAtOnce / time.Duration(writes),
	}
	began := now()
	if p.stage.cluster == nil && !ph.through {
		t.w.wakes = t.stage.redis.Client
	}
	err = t.run(ctx, p.cfg, length)
	into.add(t, began, now())
	return err
}

// run writes, reads and injects faults for a time, and then continues to read until everything is
// due.
func (t *turn) run(ctx context.Context, cfg Config, length time.Duration) (err error) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { t.stalls.watch(lasting) })
	defer func() { err = errors.Join(err, t.crowd.stop()) }()
	if err := t.crowd.start(cfg, t.spec, t.phase.polite); err != nil {
		return err
	}
	if t.phase.bound == 0 {
		beside.Go(func() { t.w.settle(lasting) })
	}
	beside.Go(func() { t.births.watch(lasting) })
	sleep(ctx, warmUp)
	writing, stop := context.WithCancel(ctx)
	defer stop()
	beside.Go(func() {
		for lasting.Err() == nil && t.crowd.alive(false) == nil {
			sleep(lasting, 50*time.Millisecond)
		}
		stop()
	})
	var writers sync.WaitGroup
	writers.Go(func() { t.w.write(writing) })
	if cfg.UntilStale {
		beside.Go(func() {
			for lasting.Err() == nil && !t.stage.fleet.FoundStale() {
				sleep(lasting, time.Second)
			}
			stop()
		})
	}
	if cfg.UntilFound {
		beside.Go(func() { t.endWhenFound(lasting, stop) })
	}
	end := time.Now().Add(length)
	for err == nil && writing.Err() == nil && time.Now().Before(end) {
		if t.phase.play == nil {
			sleep(writing, time.Until(end))
			continue
		}
		err = t.play(lasting)
	}
	stop()
	writers.Wait()
	if err = errors.Join(err, t.stage.fleet.Alive(), t.crowd.alive(true)); err != nil || ctx.Err() != nil {
		return err
	}
	if err = t.quiet(lasting); err == nil && cfg.UntilDiffers {
		err = t.differ(lasting)
	}
	return err
}

// play runs the fault of the phase with a deadline.
func (t *turn) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := t.phase.play(ctx, t); err != nil {
		return fmt.Errorf("%s: %w", t.phase.name, err)
	}
	t.faults++
	return nil
}

// quiet waits until every commit has been due for some time.
func (t *turn) quiet(ctx context.Context) error {
	last, limit := "", time.Time{}
	for t.phase.bound == 0 {
		open := 0
		t.table.unsettled(func(*commit) { open++ })
		if open == 0 {
			break
		}
		now, err := t.stage.backlog(ctx)
		if err != nil {
			return err
		}
		if now != last { // a busy machine may need longer for all
			last, limit = now, time.Now().Add(healPatience)
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s: the sweeps of %d commits have not ended, and for %s nothing has changed: %s; the workers' logs end with:\n%s",
				t.phase.name, open, healPatience, now, t.stage.fleet.Tails())
		}
		sleep(ctx, 50*time.Millisecond)
	}
	sleep(ctx, t.phase.bound+afterAll)
	return t.births.look(ctx, birthEnd)
}

// differ reads on until a worker has confirmed a shadow read, or every one of them has ended.
func (t *turn) differ(ctx context.Context) error {
	for end := time.Now().Add(shadowEnd); time.Now().Before(end); sleep(ctx, 50*time.Millisecond) {
		if found, err := t.stage.differences(ctx); len(found) > 0 || err != nil {
			return err
		}
	}
	return nil
}

// endWhenFound calls stop when there is a finding that no stall explains.
func (t *turn) endWhenFound(ctx context.Context, stop func()) {
	for ctx.Err() == nil {
		told := t.crowd.soFar()
		if _, found := t.births.soFar(); len(found) > 0 {
			stop()
			return
		}
		for _, f := range told.Found {
			if f.Wrong != "" || f.Began-f.Due > stalled(told.Stalls, f.At, f.Began) {
				stop()
				return
			}
		}
		sleep(ctx, 50*time.Millisecond)
	}
}
