package verifylocks

import (
	"context"
	"syscall"
	"time"

	"github.com/unstale/unstale/lab/rig"
)

// freezeHolder stops a holder beyond its leases, and beyond what MySQL waits for it in a
// transaction.
func freezeHolder(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 200*time.Millisecond, 800*time.Millisecond))
	p := t.crowd.living[t.dice.IntN(len(t.crowd.living))]
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, t.crowd.spec.TTL, 3*t.crowd.spec.TTL))
	return p.Signal(syscall.SIGCONT)
}

// killHolder kills a holder, and starts another one.
func killHolder(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 500*time.Millisecond, 1500*time.Millisecond))
	t.crowd.kill(t.dice.IntN(len(t.crowd.living)))
	return t.crowd.start()
}

// emptyRedis kills Redis, which comes back without data.
func emptyRedis(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, time.Second))
	if err := t.stage.redis.Server.Kill(); err != nil {
		return err
	}
	return t.stage.redis.Server.Restart(ctx)
}

// failOver promotes a replica that has not received writes for a while, as after a network
// partition.
func failOver(ctx context.Context, t *turn) error {
	s := t.stage
	if err := s.toSpare.Point(s.redis.Server.Addr()); err != nil {
		return err
	}
	if err := s.spare.Follow(ctx, s.toSpare.Addr()); err != nil {
		return err
	}
	if _, err := s.spare.CaughtUp(ctx, s.redis, "marker"); err != nil {
		return err
	}
	if err := s.toSpare.Swallow(); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, 100*time.Millisecond, t.crowd.spec.TTL))
	if err := s.redis.Server.Kill(); err != nil {
		return err
	}
	if err := s.spare.Promote(ctx); err != nil {
		return err
	}
	s.redis, s.spare = s.spare, s.redis
	if err := s.toRedis.Point(s.redis.Server.Addr()); err != nil {
		return err
	}
	s.toSpare.Calm(ctx)
	sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, time.Second))
	return s.spare.Server.Restart(ctx)
}

// freezeRedis stops Redis for a while, which may exceed the leases.
func freezeRedis(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, time.Second))
	if err := t.stage.redis.Server.Pause(); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, t.crowd.spec.TTL/3, 2*t.crowd.spec.TTL))
	return t.stage.redis.Server.Resume()
}

// killMySQL kills MySQL and restarts it with everything it had committed: its machine keeps
// running.
func killMySQL(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, time.Second, 2*time.Second))
	if err := t.stage.mysql.Kill(); err != nil {
		return err
	}
	return t.stage.mysql.Restart(ctx)
}

// setClock sets the clock of a server, or of a holder, forward or back.
func setClock(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 200*time.Millisecond, 800*time.Millisecond))
	most := []time.Duration{3 * t.crowd.spec.TTL, time.Minute, time.Hour}[t.dice.IntN(3)]
	backends := t.crowd.spec.Backends
	clocks := t.stage.clocks[backends[t.dice.IntN(len(backends))]]
	if len(t.crowd.clocks) > 0 && t.dice.IntN(2) == 0 {
		clocks = t.crowd.clocks
	}
	clocks[t.dice.IntN(len(clocks))].Set(rig.Between(t.dice, -most, most))
	return nil
}
