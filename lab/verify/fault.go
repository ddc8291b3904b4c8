package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
)

// killWorker kills a worker, or sometimes stops it, and starts another one.
func killWorker(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, 1500*time.Millisecond))
	m := t.stage.fleet.Pick(t.dice.IntN(1000))
	if m == nil {
		return errors.New("there is no worker left")
	}
	signal := syscall.SIGKILL
	if t.dice.IntN(3) == 0 {
		signal = syscall.SIGTERM
	}
	if err := m.Signal(ctx, signal, true); err != nil {
		return err
	}
	const works = "working: mysql and redis answer"
	before := t.stage.fleet.Said(works)
	if err := t.stage.fleet.Start(batchRows); err != nil {
		return err
	}
	// On a busy machine this takes long, and the next one must not be killed before.
	for limit := time.Now().Add(healPatience); t.stage.fleet.Said(works) == before; sleep(ctx, 20*time.Millisecond) {
		if time.Now().After(limit) {
			return fmt.Errorf("a new worker does not work within %s; the logs end with:\n%s", healPatience, t.stage.fleet.Tails())
		}
	}
	return nil
}

// freezeWorker stops a worker for longer than the claim timeout.
func freezeWorker(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, 1500*time.Millisecond))
	m := t.stage.fleet.Pick(t.dice.IntN(1000))
	if m == nil {
		return errors.New("there is no worker left")
	}
	if err := m.Signal(ctx, syscall.SIGSTOP, false); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, claimTimeout, claimTimeout*2))
	t.stage.fleet.Back(m)
	return m.Signal(ctx, syscall.SIGCONT, false)
}

// emptyRedis kills Redis and restarts it without data.
func emptyRedis(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, time.Second, 3*time.Second))
	if err := t.stage.redis.Server.Kill(); err != nil {
		return err
	}
	if err := t.stage.redis.Forget(); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, 0, 500*time.Millisecond))
	return t.stage.redis.Server.Restart(ctx)
}

// oldRedis kills Redis, restarts it with older data, and waits until a worker has healed the loss.
func oldRedis(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 500*time.Millisecond, 1500*time.Millisecond))
	if _, err := t.stage.redis.Save(ctx); err != nil {
		return err
	}
	if err := t.settleOne(ctx); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, time.Second, 3*time.Second))
	heals := t.stage.heals()
	defer t.table.open(everybody)()
	if t.spec.Plant == falseBeacon {
		return t.lieAboutLoss(ctx)
	}
	if err := t.stage.redis.Server.Kill(); err != nil {
		return err
	}
	if err := t.stage.redis.Server.Restart(ctx); err != nil {
		return err
	}
	return t.stage.healed(ctx, heals)
}

// settleOne makes the workers settle a row that it writes now. The writers may all be pausing, and
// a Redis that returns to a time after the last UNLINK has lost nothing to heal.
func (t *turn) settleOne(ctx context.Context) error {
	err := outbox.InTx(ctx, t.stage.db, func(tx *sql.Tx) error {
		// no turn has this id
		return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: string(item), ID: "0"})
	})
	if err != nil {
		return fmt.Errorf("write a row: %w", err)
	}
	if err := t.w.passed(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// healed waits until the workers have healed lost writes more than heals times.
func (s *stage) healed(ctx context.Context, heals int) error {
	for limit := time.Now().Add(healPatience); s.heals() == heals; sleep(ctx, 20*time.Millisecond) {
		if time.Now().After(limit) {
			return fmt.Errorf("no worker has healed the lost writes within %s; their logs end with:\n%s", healPatience, s.fleet.Tails())
		}
	}
	return nil
}

// followed makes the spare server a replica and waits until it has all data.
func (t *turn) followed(ctx context.Context) error {
	s := t.stage
	sleep(ctx, rig.Between(t.dice, 500*time.Millisecond, 1500*time.Millisecond))
	if err := s.toSpare.Point(s.redis.Server.Addr()); err != nil {
		return err
	}
	if err := s.spare.Follow(ctx, s.toSpare.Addr()); err != nil {
		return err
	}
	_, err := s.spare.CaughtUp(ctx, s.redis, "verify:marker")
	return err
}

// failOver promotes a replica that has received no writes for some time, as after a network
// partition.
func failOver(ctx context.Context, t *turn) error {
	s := t.stage
	if err := t.followed(ctx); err != nil {
		return err
	}
	if err := s.toSpare.Swallow(); err != nil {
		return err
	}
	if err := t.settleOne(ctx); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, time.Second, 3*time.Second))
	heals := s.heals()
	end := t.table.open(everybody)
	if err := s.redis.Server.Kill(); err != nil {
		return err
	}
	if err := s.spare.Promote(ctx); err != nil {
		return err
	}
	s.redis, s.spare = s.spare, s.redis
	for _, link := range []*servers.Link{s.toRedis, s.toHear} {
		if err := link.Point(s.redis.Server.Addr()); err != nil {
			return err
		}
	}
	if err := s.healed(ctx, heals); err != nil {
		return err
	}
	end()
	s.toSpare.Calm(ctx)
	if err := s.spare.Forget(); err != nil {
		return err
	}
	return s.spare.Server.Restart(ctx)
}

// lieAboutLoss brings Redis back with old data and new beacons, while the workers are stopped.
func (t *turn) lieAboutLoss(ctx context.Context) (err error) {
	var stopped []*rig.Member
	for m := t.stage.fleet.Pick(0); m != nil; m = t.stage.fleet.Pick(0) {
		stopped = append(stopped, m)
		if err := m.Signal(ctx, syscall.SIGSTOP, false); err != nil {
			return err
		}
	}
	defer func() {
		for _, m := range stopped {
			err = errors.Join(err, m.Signal(ctx, syscall.SIGCONT, false))
			t.stage.fleet.Back(m)
		}
	}()
	own := map[string]string{}
	// a private server
	for _, key := range t.stage.client.Keys(ctx, protocol.BeaconPrefix+"*").Val() {
		own[key] = t.stage.client.Get(ctx, key).Val()
	}
	if err := t.stage.redis.Server.Kill(); err != nil {
		return err
	}
	if err := t.stage.redis.Server.Restart(ctx); err != nil {
		return err
	}
	for key, value := range own {
		if err := t.stage.client.Set(ctx, key, value, time.Hour).Err(); err != nil {
			return fmt.Errorf("put a beacon back: %w", err)
		}
	}
	return nil
}

// heals returns how often workers have logged a heal.
func (s *stage) heals() int { return s.fleet.Said("redis has everything again") }

// noWorker ends all workers for some time, cleanly or not.
func noWorker(ctx context.Context, t *turn) error {
	var forger *forger
	if t.spec.Plant == forgedBeats {
		forger = newForger(t.stage)
		defer forger.close()
	}
	sleep(ctx, 3*time.Second)
	signal := syscall.SIGTERM
	if t.dice.IntN(2) == 0 || t.spec.Plant == forgedBeats {
		signal = syscall.SIGKILL
	}
	gone := 0
	for m := t.stage.fleet.Pick(0); m != nil; m = t.stage.fleet.Pick(0) {
		gone++
		if err := m.Signal(ctx, signal, true); err != nil {
			return err
		}
	}
	if forger != nil {
		forger.goOn()
	}
	sleep(ctx, t.phase.bound+2*time.Second)
	t.refuseHealthy("no worker runs")
	for range gone {
		if err := t.stage.fleet.Start(batchRows); err != nil {
			return err
		}
	}
	return t.stage.drained(ctx)
}

// refuseHealthy records a finding for each cache that reports itself healthy; why is the reason why
// it is not.
func (t *turn) refuseHealthy(why string) {
	for _, i := range t.crowd.healthy() {
		t.wrongs = append(t.wrongs, finding{Process: i, Wrong: "the cache calls itself healthy, though " + why})
	}
}

// cutSubscriber closes the readers' subscriptions repeatedly.
func cutSubscriber(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 200*time.Millisecond, 3*time.Second))
	return t.stage.toHear.Cut()
}

// freezeSubscriber drops all data of the readers' subscriptions, while the connections stay open.
func freezeSubscriber(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 2*time.Second, 3*time.Second))
	if err := t.stage.toHear.Swallow(); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, time.Second, 7*time.Second))
	return t.stage.toHear.Heal(ctx)
}

// freezeReader stops a reader process for longer than L1 may stay open without heartbeats.
func freezeReader(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 2*time.Second, 3*time.Second))
	number := t.dice.IntN(len(t.crowd.processes))
	p := t.crowd.processes[number]
	defer t.table.open(number)()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, rig.Between(t.dice, deafness+time.Second, deafness+3*time.Second))
	return p.Signal(syscall.SIGCONT)
}

// backlog describes the rows and the sweeps that wait.
func (s *stage) backlog(ctx context.Context) (text string, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT CONCAT((SELECT COUNT(*) FROM cache_outbox), ' rows, ', COUNT(*), ' sweeps from ', COALESCE(MIN(id), 0), ', ', COUNT(swept_at), ' of them swept once')
FROM cache_outbox_sweeps`).Scan(&text)
	if err != nil {
		return "", fmt.Errorf("count what waits: %w", err)
	}
	return text, nil
}

// drained waits until the outbox is nearly empty. Under load, it may never be quite empty.
func (s *stage) drained(ctx context.Context) error {
	for limit := time.Now().Add(healPatience); ; sleep(ctx, 50*time.Millisecond) {
		var rows int
		if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM cache_outbox").Scan(&rows); err != nil {
			return fmt.Errorf("count waiting rows: %w", err)
		}
		if rows < batchRows {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%d rows wait after %s with workers", rows, healPatience)
		}
	}
}
