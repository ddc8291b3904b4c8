package keyspace

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A tally is the result of unlinking units so far.
type tally struct {
	removed int64 // names that existed
	refused []refusedUnit
	away    []refusedUnit // their master is unavailable

	writer   *beaconWriter
	position Position // the last one, if there was any
	born     uint64   // see Unlinked
	readings []Reading
	timed    bool // the clocks were asked

	unclear []unit // of a chunk that was refused as a whole
	split   []unit // of a chunk whose slot is moving
}

// addAway records that the master of a chunk is unavailable.
func (t *tally) addAway(c chunk, o *Outage) {
	for _, u := range c {
		t.away = append(t.away, refusedUnit{u, o})
	}
}

// send sends one pipeline. All of a tally's pipelines belong to one epoch: another one means that
// the writer has had a Loss, and some may be lost.
func (t *tally) send(ctx context.Context, b *Beacons, commands []redis.Cmder) error {
	born := t.birth(b)
	at, err := b.writeBeacon(ctx, t.writer, commands, born)
	if err != nil {
		return err
	}
	if born != nil {
		t.born, t.readings = born.read(&b.nodes.clock)
	}
	return t.follow(at)
}

// birth returns the request for the time in the first pipeline of an Unlink, and nil in any other.
func (t *tally) birth(b *Beacons) *birth {
	if t.timed || t.writer != &b.unlinks {
		return nil
	}
	t.timed = true
	if !b.nodes.clock.mayAsk() {
		return nil
	}
	return &birth{}
}

// follow records a position. The zero Position, of nothing to unlink, changes nothing.
func (t *tally) follow(b Position) error {
	switch {
	case b.Epoch == "":
		return nil
	case t.position.Epoch != "" && t.position.Epoch != b.Epoch:
		return &Loss{Position: t.position}
	}
	t.position = b
	return nil
}

// count records the reply to one chunk. The error is not the fault of a key.
func (t *tally) count(c chunk, reply *redis.IntCmd) error {
	err := reply.Err()
	switch {
	case err == nil:
		t.removed += reply.Val()
	case isSplit(c, err):
		t.split = append(t.split, c...)
	case !isRefusal(err):
		return err
	case len(c) == 1:
		t.refused = append(t.refused, refusedUnit{c[0], err})
	default:
		t.unclear = append(t.unclear, c...)
	}
	return nil
}

// isSplit reports whether a chunk was turned away because its slot is on its way from one node to
// another, with some of the names here and some there. A name that does not exist, as most leases
// do not, counts as there.
func isSplit(c chunk, err error) bool {
	names, _ := c.size()
	return names > 1 && redis.IsTryAgainError(err)
}
