package keyspace

import (
	"context"
	"errors"
	"math"

	"github.com/redis/go-redis/v9"
)

// Everything is the result of Survived for an epoch in a Redis without data: it cannot have stale
// values of the epoch.
const Everything = math.MaxUint64

// unbroken is like Everything, in a Redis with data: its new tag is younger than the data.
const unbroken = Everything - 1

// Survived returns for each epoch, of this or of other processes, the position of the last
// acknowledged write that Redis still has. In a Cluster the available master with the lowest
// position counts. The position may be one too low after a Loss, whose own pipeline overwrote one
// of the two keys. 0 means that nothing is known to be left, since the beacon is gone. The error is
// an *Outage.
func (b *Beacons) Survived(ctx context.Context, epochs []string) (map[string]uint64, error) {
	positions := make(map[string]uint64, len(epochs))
	present, err := b.shards.present(ctx)
	if err != nil || len(epochs) == 0 {
		return positions, err
	}
	for _, epoch := range epochs {
		positions[epoch] = Everything
	}
	b.shards.doubt(false)
	gone := 0
	for _, s := range present {
		if b.shards.hasMoved(s.tag) {
			for _, epoch := range epochs {
				positions[epoch] = min(positions[epoch], unbroken)
			}
			continue
		}
		err := b.survivedOn(ctx, s.tag, epochs, positions)
		if err == nil {
			continue
		}
		o := b.shards.shardOutage(ctx, err)
		if gone++; o == nil || gone == len(present) {
			return nil, err
		}
		b.shards.markAway(s.addr, o)
	}
	return positions, nil
}

// survivedOn lowers positions to those of the master with the tag.
func (b *Beacons) survivedOn(ctx context.Context, tag string, epochs []string, positions map[string]uint64) error {
	gets, others := make([][]redis.Cmder, len(epochs)), make([]*redis.StringCmd, len(epochs))
	commands := make([]redis.Cmder, 0, (2*copies+1)*len(epochs))
	for i, epoch := range epochs {
		gets[i] = readBeacon(ctx, tag, epoch)
		commands = append(commands, gets[i]...)
		if others[i] = redis.NewStringCmd(ctx, "get", beaconKey(tag, epoch, confirmed)); tag != "" {
			commands = append(commands, others[i])
		}
	}
	if err := b.nodes.exec(ctx, b.nodes.client, commands); err != nil {
		return err
	}
	var gone []string
	for i, epoch := range epochs {
		seen, err := b.readProbe(ctx, gets[i])
		if err != nil {
			return err
		}
		if err := others[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return b.nodes.outage(ctx, err)
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
	empty, err := b.empty(ctx, tag)
	for _, epoch := range gone {
		if !empty {
			positions[epoch] = 0
		}
	}
	return err
}

// empty reports whether a master has no key but those of the workers' state. A user who may not
// SCAN cannot know, and takes it for no.
func (b *Beacons) empty(ctx context.Context, tag string) (bool, error) {
	master, err := b.nodes.master(ctx, tag)
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
			return false, b.nodes.outage(ctx, err)
		}
		for _, name := range names {
			if !isState(name) {
				return false, nil
			}
		}
	}
	return true, nil
}

// survived returns the last number before a gap, or 0 if there is none, from both keys of a beacon.
func survived(a, b value) uint64 {
	if b.n > a.n {
		a, b = b, a
	}
	if b.n < a.before {
		return b.n
	}
	return a.n
}
