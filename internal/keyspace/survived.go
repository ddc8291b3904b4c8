package keyspace

import (
	"context"
	"errors"
	"math"

	"github.com/redis/go-redis/v9"
)

// Everything is what Survived says of an epoch in a Redis that holds no data: nothing stale can be in it.
const Everything = math.MaxUint64

// unbroken is like Everything, in a Redis that holds data: its new tag is younger than what it has.
const unbroken = Everything - 1

// Survived says for each epoch, of this or of other processes, up to which position Redis still has what it
// acknowledged; in Cluster it is the master with the shortest memory that counts, of those that are not away. It may be
// one too few after a Loss, whose own pipeline wrote over one of the two keys. 0 means that nothing is known to be
// left, since the beacon is gone. The error is an *Outage.
func (k *Keyspace) Survived(ctx context.Context, epochs []string) (map[string]uint64, error) {
	positions := make(map[string]uint64, len(epochs))
	present, err := k.present(ctx)
	if err != nil || len(epochs) == 0 {
		return positions, err
	}
	for _, epoch := range epochs {
		positions[epoch] = Everything
	}
	k.shards.doubt(false)
	gone := 0
	for _, s := range present {
		if k.shards.hasMoved(s.tag) {
			for _, epoch := range epochs {
				positions[epoch] = min(positions[epoch], unbroken)
			}
			continue
		}
		err := k.survivedOn(ctx, s.tag, epochs, positions)
		if err == nil {
			continue
		}
		o := k.shardOutage(ctx, err)
		if gone++; o == nil || gone == len(present) {
			return nil, err
		}
		k.markAway(s.addr, o)
	}
	return positions, nil
}

// survivedOn lowers positions to what the master with the tag has.
func (k *Keyspace) survivedOn(ctx context.Context, tag string, epochs []string, positions map[string]uint64) error {
	gets, others := make([][2]*redis.StringCmd, len(epochs)), make([]*redis.StringCmd, len(epochs))
	commands := make([]redis.Cmder, 0, 3*len(epochs))
	for i, epoch := range epochs {
		for slot := range gets[i] {
			gets[i][slot] = redis.NewStringCmd(ctx, "get", beaconKey(tag, epoch, slot))
			commands = append(commands, gets[i][slot])
		}
		if others[i] = redis.NewStringCmd(ctx, "get", beaconKey(tag, epoch, confirmed)); tag != "" {
			commands = append(commands, others[i])
		}
	}
	if err := k.exec(ctx, k.client, commands); err != nil {
		return err
	}
	var gone []string
	for i, epoch := range epochs {
		seen, err := k.readProbe(ctx, gets[i])
		if err != nil {
			return err
		}
		if err := others[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return k.outage(ctx, err)
		}
		n := max(survived(seen[0], seen[1]), parseValue(others[i].Val()).n)
		if n == 0 {
			gone = append(gone, epoch)
			continue
		}
		positions[epoch] = min(positions[epoch], n)
	}
	if len(gone) == 0 {
		return nil
	}
	empty, err := k.empty(ctx, tag)
	for _, epoch := range gone {
		if !empty {
			positions[epoch] = 0
		}
	}
	return err
}

// empty reports whether a master has no key but those of the workers' state. A user who may not
// SCAN cannot know, and takes it for no.
func (k *Keyspace) empty(ctx context.Context, tag string) (bool, error) {
	master, err := k.master(ctx, tag)
	if err != nil {
		return false, err
	}
	conn := master.Conn()
	defer conn.Close()
	for cursor, first := uint64(0), true; cursor != 0 || first; first = false {
		var names []string
		names, cursor, err = conn.Scan(ctx, cursor, "", scanCount).Result()
		switch {
		case redis.IsPermissionError(err):
			return false, nil
		case err != nil:
			return false, k.outage(ctx, err)
		}
		for _, name := range names {
			if !isState(name) {
				return false, nil
			}
		}
	}
	return true, nil
}

// survived is the last number up to which nothing is missing, 0 if there is none, given both keys of a beacon.
func survived(a, b value) uint64 {
	if b.n > a.n {
		a, b = b, a
	}
	if b.n < a.before {
		return b.n
	}
	return a.n
}
