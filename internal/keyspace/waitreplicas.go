package keyspace

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const maxWaitReplicas = 10

// A waitOption says how many replicas have to acknowledge a pipeline.
type waitOption struct {
	replicas int // 0: nobody waits
	limit    time.Duration
}

func (w waitOption) command(ctx context.Context) *redis.IntCmd {
	return redis.NewIntCmd(ctx, "wait", w.replicas, w.limit.Milliseconds())
}

// append adds a WAIT to a pipeline over one connection: WAIT is about the writes of its own connection. In Cluster,
// where a pipeline goes over many and a command without a key over any, it adds nothing: see waited.
func (w waitOption) append(ctx context.Context, k *Keyspace, commands *[]redis.Cmder) []*redis.IntCmd {
	if w.replicas == 0 || k.cluster != nil {
		return nil
	}
	wait := w.command(ctx)
	*commands = append(*commands, wait)
	return []*redis.IntCmd{wait}
}

// waited checks the answers. In Cluster it first writes each master's beacon once more, over a connection that then
// waits: what a replica has of that write, it has of all those before it.
func (k *Keyspace) waited(ctx context.Context, w waitOption, waits []*redis.IntCmd, probes []beaconProbe) error {
	if w.replicas > 0 && k.cluster != nil {
		for _, g := range probes {
			master, err := k.master(ctx, g.tag)
			if err != nil {
				return err
			}
			wait := w.command(ctx)
			if err := k.exec(ctx, master, []redis.Cmder{redis.NewStatusCmd(ctx, g.set.Args()...), wait}); err != nil {
				return err
			}
			waits = append(waits, wait)
		}
	}
	for _, wait := range waits {
		n, err := wait.Result()
		switch {
		case err != nil:
			return k.outage(ctx, err)
		case n < int64(w.replicas):
			return &Outage{State: StateNoReplicas, Err: fmt.Errorf("%d of %d replicas have acknowledged within %v", n, w.replicas, w.limit)}
		}
	}
	return nil
}
