package keyspace

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// tombstoneValue is the value of a tombstone. It is never read: only its existence counts.
const tombstoneValue = "1"

// A tombstone forbids storing a value under the key of a unit. It is a separate key, which no
// UNLINK names.
type tombstone struct {
	of       *unit
	name     string
	hold     time.Duration
	commands [3]redis.Cmder
}

// hold sets the tombstones that units need; of returns the hold time, 0 for none. A unit whose
// tombstone is refused is unlinked nevertheless, since its key is stale anyway. So is a unit with
// an unavailable master, which unlinking will find too.
//
// Tombstones are set before the first key is unlinked: otherwise a lease that a reader took between
// the two would outlive them. They are not in the same pipeline, since in a Cluster a redirected
// tombstone would arrive after the key was deleted.
func (u *Unlinker) hold(ctx context.Context, units []unit, of func(index int) time.Duration) ([]refusedUnit, error) {
	var wanted []tombstone
	for i := range units {
		one := &units[i]
		hold := of(one.index)
		if hold <= 0 {
			continue
		}
		name, ok := protocol.HoldKey(one.key)
		if !ok {
			continue
		}
		switch away, err := u.shards.awayFor(ctx, one.key); {
		case err != nil:
			return nil, err
		case away == nil:
			wanted = append(wanted, tombstone{of: one, name: name, hold: hold})
		}
	}
	var refused []refusedUnit
	for len(wanted) > 0 {
		n := tombstonesOfAPipeline(wanted)
		some, err := u.setTombstones(ctx, wanted[:n])
		if err != nil {
			return nil, err
		}
		refused = append(refused, some...)
		wanted = wanted[n:]
	}
	return refused, nil
}

// tombstonesOfAPipeline returns how many of the first tombstones go into one pipeline, at least
// one.
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
func (u *Unlinker) setTombstones(ctx context.Context, wanted []tombstone) (refused []refusedUnit, err error) {
	var commands []redis.Cmder
	for i := range wanted {
		wanted[i].prepare(ctx)
		commands = append(commands, wanted[i].commands[:]...)
	}
	if err := u.nodes.exec(ctx, u.nodes.client, commands); err != nil {
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
		o := u.shards.shardOutage(ctx, err)
		if o == nil {
			return nil, u.nodes.outage(ctx, err)
		}
		if err := u.shards.markAwayFor(ctx, t.of.key, o); err != nil {
			return nil, err
		}
	}
	return refused, nil
}

// prepare builds the commands. None of them shortens a running tombstone. The first extends an
// existing tombstone, which otherwise might expire before the second creates a missing one. If
// another worker has set a shorter one meanwhile, the third extends that.
func (t *tombstone) prepare(ctx context.Context) {
	ms := int64((t.hold + time.Millisecond - 1) / time.Millisecond)
	t.commands = [3]redis.Cmder{
		redis.NewBoolCmd(ctx, "pexpire", t.name, ms, "gt"),
		redis.NewBoolCmd(ctx, "set", t.name, tombstoneValue, "px", ms, "nx"),
		redis.NewBoolCmd(ctx, "pexpire", t.name, ms, "gt"),
	}
}

// err returns the first error of the commands.
func (t *tombstone) err() error {
	for _, c := range t.commands {
		if err := c.Err(); err != nil {
			return err
		}
	}
	return nil
}
