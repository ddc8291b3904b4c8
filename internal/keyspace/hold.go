package keyspace

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// tombstoneValue is what a tombstone holds. Nobody reads it: that it is there is what counts.
const tombstoneValue = "1"

// A tombstone forbids to store anything under the key of a unit. It is a key of its own, which no UNLINK names.
type tombstone struct {
	of       *unit
	name     string
	hold     time.Duration
	commands [3]redis.Cmder
}

// hold sets the tombstones that units need; of says for how long, 0 for none. A unit whose tombstone is refused is
// unlinked nonetheless: its key is stale all the same. So is one whose master is away, which unlinking will meet as
// well.
//
// The tombstones stand before the first key is unlinked: a lease that a reader took between the two would outlive them.
// They do not share its pipeline, since in Cluster a tombstone that is redirected would arrive after the key had gone.
func (k *Keyspace) hold(ctx context.Context, units []unit, of func(index int) time.Duration) ([]refusedUnit, error) {
	var wanted []tombstone
	for i := range units {
		u := &units[i]
		hold := of(u.index)
		if hold <= 0 {
			continue
		}
		name, ok := protocol.HoldKey(u.key)
		if !ok {
			continue
		}
		switch away, err := k.awayFor(ctx, u.key); {
		case err != nil:
			return nil, err
		case away == nil:
			wanted = append(wanted, tombstone{of: u, name: name, hold: hold})
		}
	}
	var refused []refusedUnit
	for len(wanted) > 0 {
		n := tombstonesOfAPipeline(wanted)
		some, err := k.setTombstones(ctx, wanted[:n])
		if err != nil {
			return nil, err
		}
		refused = append(refused, some...)
		wanted = wanted[n:]
	}
	return refused, nil
}

// tombstonesOfAPipeline is how many of the first tombstones go into one pipeline: one at least.
func tombstonesOfAPipeline(wanted []tombstone) int {
	bytes := 0
	for i := range wanted {
		commands := len(wanted[i].commands)
		if bytes += commands * len(wanted[i].name); i > 0 && (bytes > maxBytesPerPipeline || commands*i >= maxNamesPerPipeline) {
			return i
		}
	}
	return len(wanted)
}

// setTombstones sets tombstones in one pipeline.
func (k *Keyspace) setTombstones(ctx context.Context, wanted []tombstone) (refused []refusedUnit, err error) {
	var commands []redis.Cmder
	for i := range wanted {
		wanted[i].prepare(ctx)
		commands = append(commands, wanted[i].commands[:]...)
	}
	if err := k.exec(ctx, k.client, commands); err != nil {
		return nil, err
	}
	for i := range wanted {
		t := &wanted[i]
		err := t.err()
		if err == nil {
			continue
		}
		if isRefusal(err) {
			refused = append(refused, refusedUnit{*t.of, err})
			continue
		}
		o := k.shardOutage(ctx, err)
		if o == nil {
			return nil, k.outage(ctx, err)
		}
		if err := k.markAwayFor(ctx, t.of.key, o); err != nil {
			return nil, err
		}
	}
	return refused, nil
}

// prepare builds the commands. None of them shortens a hold that runs: the first prolongs a tombstone that is there, so
// that it does not run out before the second, which sets one where there is none. Where another worker has set a shorter
// one between the two, the third prolongs that.
func (t *tombstone) prepare(ctx context.Context) {
	ms := int64((t.hold + time.Millisecond - 1) / time.Millisecond)
	t.commands = [3]redis.Cmder{
		redis.NewBoolCmd(ctx, "pexpire", t.name, ms, "gt"),
		redis.NewBoolCmd(ctx, "set", t.name, tombstoneValue, "px", ms, "nx"),
		redis.NewBoolCmd(ctx, "pexpire", t.name, ms, "gt"),
	}
}

// err is the first error of the commands.
func (t *tombstone) err() error {
	for _, c := range t.commands {
		if err := c.Err(); err != nil {
			return err
		}
	}
	return nil
}
