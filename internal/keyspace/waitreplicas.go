package keyspace

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const maxWaitReplicas = 10

// A waitOption is the number of replicas that must acknowledge a pipeline.
type waitOption struct {
	replicas int // 0: no wait
	limit    time.Duration
}

func (w waitOption) command(ctx context.Context) *redis.IntCmd {
	return redis.NewIntCmd(ctx, "wait", w.replicas, w.limit.Milliseconds())
}

// append adds a WAIT to a pipeline over one connection: WAIT covers the writes of its connection.
// In a Cluster, where a pipeline uses many connections and a command without a key any of them, it
// adds nothing: see waited.
func (w waitOption) append(ctx context.Context, cluster bool, commands *[]redis.Cmder) []*redis.IntCmd {
	if w.replicas == 0 || cluster {
		return nil
	}
	wait := w.command(ctx)
	*commands = append(*commands, wait)
	return []*redis.IntCmd{wait}
}

// waited checks the answers. In a Cluster it first writes the beacon of each master again, over a
// connection that then waits: a replica with that write has all earlier ones.
func (b *Beacons) waited(ctx context.Context, w waitOption, waits []*redis.IntCmd, probes []beaconProbe) error {
	if w.replicas > 0 && b.nodes.cluster != nil {
		for _, g := range probes {
			master, err := b.nodes.master(ctx, g.tag)
			if err != nil {
				return err
			}
			wait := w.command(ctx)
			if err := b.nodes.exec(ctx, master, []redis.Cmder{redis.NewStatusCmd(ctx, g.set.Args()...), wait}); err != nil {
				return err
			}
			waits = append(waits, wait)
		}
	}
	for _, wait := range waits {
		n, err := wait.Result()
		switch {
		case err != nil:
			return b.nodes.outage(ctx, err)
		case n < int64(w.replicas):
			return &Outage{State: StateNoReplicas, Err: fmt.Errorf("%d of %d replicas have acknowledged within %v", n, w.replicas, w.limit)}
		}
	}
	return nil
}
