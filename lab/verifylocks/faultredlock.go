package verifylocks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lab/rig"
)

// emptyInstance kills one instance of the Redlock, which comes back without data.
func emptyInstance(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, time.Second))
	return empty(ctx, t.instances(1))
}

// emptyInstances empties a majority together, so that the next holder gets a quorum while another
// holder assumes to have one. The instances are killed, or lose their data while they run, which
// works on slow machines too.
func emptyInstances(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 200*time.Millisecond, 600*time.Millisecond))
	emptied := t.instances(instances/2 + 1 + t.dice.IntN(instances/2+1))
	if t.dice.IntN(2) == 0 {
		return empty(ctx, emptied)
	}
	var clients []*redis.Client
	for _, r := range emptied {
		clients = append(clients, newClient(r.Addr()))
	}
	defer func() { _ = closeAll(clients) }()
	for _, c := range clients {
		if err := c.FlushAll(ctx).Err(); err != nil {
			return fmt.Errorf("empty an instance: %w", err)
		}
	}
	return nil
}

// empty kills instances, which come back without data.
func empty(ctx context.Context, list []*servers.Redis) error {
	for _, r := range list {
		if err := r.Kill(); err != nil {
			return err
		}
	}
	errs := make([]error, len(list))
	var group sync.WaitGroup
	for i, r := range list {
		group.Go(func() { errs[i] = r.Restart(ctx) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// freezeInstances stops some of them for a while, which may exceed the leases.
func freezeInstances(ctx context.Context, t *turn) error {
	sleep(ctx, rig.Between(t.dice, 300*time.Millisecond, time.Second))
	frozen := t.instances(1 + t.dice.IntN(instances))
	for _, r := range frozen {
		if err := r.Pause(); err != nil {
			return err
		}
	}
	sleep(ctx, rig.Between(t.dice, t.crowd.spec.TTL/3, 2*t.crowd.spec.TTL))
	for _, r := range frozen {
		if err := r.Resume(); err != nil {
			return err
		}
	}
	return nil
}

// instances draws some.
func (t *turn) instances(number int) (list []*servers.Redis) {
	for _, n := range t.dice.Perm(instances)[:number] {
		list = append(list, t.stage.redlock[n])
	}
	return list
}
