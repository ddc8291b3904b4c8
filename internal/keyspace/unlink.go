package keyspace

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Target is one key to unlink.
type Target struct {
	Key string

	// Hold, if more than zero, sets a tombstone (protocol.HoldKey) for that long, so that nobody can fill the key
	// meanwhile. It is rounded up to milliseconds. A key that can have no lease is never filled, and needs none.
	//
	// A tombstone stands before its key is unlinked, and nothing removes it but its time: neither a later call for the
	// same key, with a shorter Hold or with none, nor a sweep. An eviction by maxmemory may.
	Hold time.Duration
}

// Unlinked says what came of Unlink.
type Unlinked struct {
	// Failures are the targets that Redis refused, and in Cluster those whose master is away, ordered by index.
	Failures []Failure
	// Position is the place after the last name: see Survived. It is zero where there was nothing to unlink.
	Position Position
	// Born is a time before the first key was unlinked, by the clock of Redis, in Cluster by the one that is furthest
	// behind: microseconds since 1970. 0: not known, since the account lacks +time, there are no beacons, or nothing was
	// unlinked.
	Born uint64
}

// Unlink removes targets with their leases. In Cluster a master that is away is the failure of its targets, while the
// others are unlinked. An error is an *Outage or a *Loss: some targets may be gone, nothing may be taken for done, and
// unlinking all of them again is harmless. It makes one round trip for each 10,000 names or so, and one more if a
// target has a Hold.
func (k *Keyspace) Unlink(ctx context.Context, targets []Target) (Unlinked, error) {
	units := make([]unit, len(targets))
	for i, t := range targets {
		units[i] = newUnit(i, t.Key)
	}
	var refused []refusedUnit
	if slices.ContainsFunc(targets, func(t Target) bool { return t.Hold > 0 }) {
		var err error
		if refused, err = k.hold(ctx, units, func(index int) time.Duration { return targets[index].Hold }); err != nil {
			return Unlinked{}, err
		}
	}
	t, err := k.unlink(ctx, &k.unlinks, units)
	if err == nil && len(t.away) > 0 && k.allAway() {
		err = t.away[0].err
	}
	if err != nil {
		return Unlinked{}, err
	}
	return Unlinked{failures(slices.Concat(refused, t.refused, t.away)), t.position, t.born}, nil
}

// A refusedUnit is a unit that Redis refused, or whose master is away, and why.
type refusedUnit struct {
	unit
	err error // an error reply, or an *Outage
}

// failure is a *Refusal or an *Outage.
func (r refusedUnit) failure() error {
	if isOutage(r.err) {
		return r.err
	}
	return &Refusal{Key: r.key, Err: r.err}
}

// failures is the first failure of each index, in order.
func failures(refused []refusedUnit) []Failure {
	sort.SliceStable(refused, func(i, j int) bool { return refused[i].index < refused[j].index })
	var list []Failure
	for _, r := range refused {
		if n := len(list); n == 0 || list[n-1].Index != r.index {
			list = append(list, Failure{Index: r.index, Err: r.failure()})
		}
	}
	return list
}

// A tally is what came of unlinking units so far.
type tally struct {
	removed int64 // names that existed
	refused []refusedUnit
	away    []refusedUnit // their master is away

	writer   *beaconWriter
	position Position // the last one, if there was any
	born     uint64   // see Unlinked
	timed    bool     // the clocks were asked

	unclear []unit // of a chunk that was refused as a whole
	split   []unit // of a chunk whose slot is moving
}

// unlink removes units, in pipelines of a beacon writer. When it returns an error the tally holds what was done before
// it. Tombstones are passed over, whoever names them: a row, or an index set.
func (k *Keyspace) unlink(ctx context.Context, l *beaconWriter, units []unit) (t tally, err error) {
	t.writer = l
	if slices.ContainsFunc(units, unit.isTombstone) {
		units = slices.DeleteFunc(slices.Clone(units), unit.isTombstone)
	}
	if err := k.send(ctx, &t, k.chunks(units)); err != nil {
		return t, err
	}
	// Which units of the refused chunks are at fault shows when each goes alone.
	if err := k.send(ctx, &t, oneByOne(t.unclear)); err != nil {
		return t, err
	}
	if err := k.unlinkSplit(ctx, &t); err != nil {
		return t, err
	}
	return t, k.explainRefusals(ctx, t.refused)
}

// send sends chunks, in as many pipelines as it takes.
func (k *Keyspace) send(ctx context.Context, t *tally, chunks []chunk) error {
	for len(chunks) > 0 {
		var round []chunk
		round, chunks = nextRound(chunks)
		round, err := k.skipAway(ctx, t, round)
		if err != nil {
			return err
		}
		commands := make([]redis.Cmder, len(round))
		for i, c := range round {
			commands[i] = c.command(ctx)
		}
		if err := t.send(ctx, k, commands); err != nil {
			return err
		}
		for i, c := range round {
			err := t.count(c, commands[i].(*redis.IntCmd))
			if err == nil {
				continue
			}
			o := k.shardOutage(ctx, err)
			if o == nil {
				return k.outage(ctx, err)
			}
			if err := k.markAwayFor(ctx, c[0].key, o); err != nil {
				return err
			}
			t.addAway(c, o)
		}
	}
	return nil
}

// skipAway leaves out the chunks whose master is away.
func (k *Keyspace) skipAway(ctx context.Context, t *tally, chunks []chunk) ([]chunk, error) {
	if len(k.Away()) == 0 {
		return chunks, nil
	}
	var present []chunk
	for _, c := range chunks {
		switch away, err := k.awayFor(ctx, c[0].key); {
		case err != nil:
			return nil, err
		case away != nil:
			t.addAway(c, away)
		default:
			present = append(present, c)
		}
	}
	return present, nil
}

// addAway notes that the master of a chunk is away.
func (t *tally) addAway(c chunk, o *Outage) {
	for _, u := range c {
		t.away = append(t.away, refusedUnit{u, o})
	}
}

// send sends one pipeline. All of a tally's pipelines belong to one epoch: another one means that the writer has had a
// Loss, and some may be lost.
func (t *tally) send(ctx context.Context, k *Keyspace, commands []redis.Cmder) error {
	born := t.birth(k)
	b, err := k.writeBeacon(ctx, t.writer, commands, born)
	if err != nil {
		return err
	}
	if born != nil {
		t.born = born.micros(&k.clock)
	}
	return t.follow(b)
}

// birth is what asks for the time in the first pipeline of an Unlink, and nil in any other.
func (t *tally) birth(k *Keyspace) *birth {
	if t.timed || t.writer != &k.unlinks {
		return nil
	}
	t.timed = true
	if !k.clock.mayAsk() {
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
		return &Loss{t.position}
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

// isSplit reports whether a chunk was turned away because its slot is on its way from one node to another, with some of
// the names here and some there. A name that does not exist, as most leases do not, counts as there.
func isSplit(c chunk, err error) bool {
	names, _ := c.size()
	return names > 1 && redis.IsTryAgainError(err)
}

// unlinkSplit removes the units of split chunks name by name, which a slot on its way allows. All leases are gone
// before the first key is asked for: in one pipeline a lease that is redirected to the other node would arrive after
// its key, and what a reader stored between the two would stay.
func (k *Keyspace) unlinkSplit(ctx context.Context, t *tally) error {
	var leases, keys []unit
	for _, u := range t.split {
		if u.lease != "" {
			leases = append(leases, unit{index: u.index, key: u.lease})
		}
		keys = append(keys, unit{index: u.index, key: u.key})
	}
	if err := k.send(ctx, t, oneByOne(leases)); err != nil {
		return err
	}
	return k.send(ctx, t, oneByOne(keys))
}
