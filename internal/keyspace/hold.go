package keyspace

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// HoldToken is the value of a tombstone: what stands in a lease key while a Hold runs. A reader's token must be random,
// and so never equals it; while it stands there no reader can take the lease, and no fill with another token is
// accepted.
const HoldToken = "unstale:hold"

// hold writes the tombstones that targets ask for, and takes the lease out of each unit whose tombstone stands, so that
// unlinking spares it. A unit whose tombstone was refused keeps its lease: its key is stale all the same. So does one
// whose master is away, which unlinking will meet as well.
//
// The tombstones stand before the first key is unlinked. They do not share its pipeline, since in Cluster a tombstone
// that is redirected would arrive after the key had gone.
func (k *Keyspace) hold(ctx context.Context, targets []Target, units []unit) ([]refusedUnit, error) {
	longest := map[string]time.Duration{}
	for _, t := range targets {
		if t.Hold > longest[t.Key] {
			longest[t.Key] = t.Hold
		}
	}
	if len(longest) == 0 {
		return nil, nil
	}
	var held []*unit
	for i := range units {
		u := &units[i]
		if u.lease == "" || longest[u.key] == 0 {
			continue
		}
		switch away, err := k.awayFor(ctx, u.key); {
		case err != nil:
			return nil, err
		case away == nil:
			held = append(held, u)
		}
	}
	var refused []refusedUnit
	for len(held) > 0 {
		n := min(len(held), maxNamesPerPipeline)
		commands := make([]redis.Cmder, n)
		for i, u := range held[:n] {
			commands[i] = tombstone(ctx, u.lease, longest[u.key])
		}
		if err := k.exec(ctx, k.client, commands); err != nil {
			return nil, err
		}
		for i, u := range held[:n] {
			err := commands[i].Err()
			switch {
			case err == nil:
				u.lease = ""
			case isRefusal(err):
				refused = append(refused, refusedUnit{*u, err})
			default:
				o := k.shardOutage(ctx, err)
				if o == nil {
					return nil, k.outage(ctx, err)
				}
				if err := k.markAwayFor(ctx, u.key, o); err != nil {
					return nil, err
				}
			}
		}
		held = held[n:]
	}
	return refused, nil
}

// tombstone builds the SET. PX beats whatever time the reader's lease had left.
func tombstone(ctx context.Context, lease string, hold time.Duration) *redis.StatusCmd {
	ms := (hold + time.Millisecond - 1) / time.Millisecond
	return redis.NewStatusCmd(ctx, "set", lease, HoldToken, "px", int64(ms))
}
