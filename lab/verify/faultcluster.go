package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/unstale/unstale/lab/rig"
)

// reloadMap gives the workers another map, and then the first one again.
func reloadMap(ctx context.Context, t *turn) error {
	for _, text := range []string{otherMap, workerMap} {
		sleep(ctx, rig.Between(t.dice, 2500*time.Millisecond, 4*time.Second)) // workers read it every 2 s
		if err := t.stage.fleet.Remap(text); err != nil {
			return err
		}
	}
	return nil
}

// setClock sets the clock of a server of Redis forward or back, and then to the right time again.
func setClock(ctx context.Context, t *turn) error {
	node := t.stage.redis
	if c := t.stage.cluster; c != nil {
		node = c.Nodes[t.dice.IntN(len(c.Nodes))]
	}
	most := []time.Duration{5 * time.Second, time.Minute}[t.dice.IntN(2)]
	for _, offset := range []time.Duration{rig.Between(t.dice, -most, most), 0} {
		sleep(ctx, rig.Between(t.dice, time.Second, 4*time.Second))
		node.Clock.Set(offset)
	}
	return nil
}

// moveSlots moves slots of the turn's keys to other masters, one at a time.
func moveSlots(ctx context.Context, t *turn) error {
	for range 5 {
		key := t.spec.name(t.dice.IntN(t.spec.Keys))
		if err := t.stage.cluster.Move(ctx, key, rig.Between(t.dice, 0, 500*time.Millisecond)); err != nil {
			return err
		}
	}
	sleep(ctx, rig.Between(t.dice, time.Second, 3*time.Second))
	return nil
}

// replaceMaster makes a replica the master, which may lack the last writes.
func replaceMaster(ctx context.Context, t *turn) error {
	return t.lose(ctx, func() error { return t.stage.cluster.FailOver(ctx, t.dice.IntN(rig.Masters), t.dice.IntN(2) == 0) })
}

// killMaster kills a master, and waits until its replica has taken over.
func killMaster(ctx context.Context, t *turn) error {
	return t.lose(ctx, func() error { return t.stage.cluster.KillMaster(ctx, t.dice.IntN(rig.Masters)) })
}

// lose runs a fault that may cost a master some writes, and ignores reads until the workers have
// healed them.
func (t *turn) lose(ctx context.Context, fault func() error) error {
	sleep(ctx, rig.Between(t.dice, time.Second, 3*time.Second))
	defer t.table.open(everybody)()
	unhealed := t.stage.unhealed() // by workers that were killed
	if err := fault(); err != nil {
		return err
	}
	if err := t.stage.cluster.Ready(ctx); err != nil {
		return err
	}
	return t.stage.recovered(ctx, unhealed)
}

// unhealed returns how many heals workers have begun and not ended.
func (s *stage) unhealed() int {
	return s.fleet.Said("redis lost unlinks that it had acknowledged") - s.heals()
}

// recovered waits until the workers have had time to notice lost writes, no more than unhealed
// heals have not ended, and no row waits for a master.
func (s *stage) recovered(ctx context.Context, unhealed int) error {
	for limit := time.Now().Add(healPatience); ; {
		sleep(ctx, 2*time.Second) // workers compare with each heartbeat
		var delayed int
		if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM cache_outbox_delayed").Scan(&delayed); err != nil {
			return fmt.Errorf("count delayed rows: %w", err)
		}
		if delayed == 0 && s.unhealed() <= unhealed {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%d rows wait for a master, or a worker heals, %s after a failover; the workers' logs end with:\n%s", delayed, healPatience, s.fleet.Tails())
		}
	}
}
