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

	// Hold, if positive, sets a tombstone (protocol.HoldKey) for that long. No reader can fill the
	// key meanwhile. It is rounded up to milliseconds. A key that cannot have a lease is never
	// filled, and needs none.
	//
	// A tombstone exists before its key is unlinked, and only its TTL removes it: neither a later
	// call for the same key, with a shorter Hold or without one, nor a sweep. An eviction by
	// maxmemory can.
	Hold time.Duration
}

// Unlinked is the result of Unlink.
type Unlinked struct {
	// Failures are the targets that Redis refused, and in a Cluster those whose master is
	// unavailable, ordered by index.
	Failures []Failure
	// Position is the place after the last name: see Survived. It is zero where there was nothing
	// to unlink.
	Position Position
	// Born is a time before the first key was unlinked, by the clock of Redis, in a Cluster by the
	// slowest clock, in microseconds since 1970. 0: unknown, since the account lacks +time, there
	// are no beacons, or nothing was unlinked.
	Born uint64
	// Readings are the clocks of the masters before the first key was unlinked there; none where
	// Born is 0.
	Readings []Reading
	// Began is before the first tombstone and the first UNLINK, and Ended after the last answer.
	Began, Ended time.Time
}

// An Unlinker removes keys with their leases.
type Unlinker struct {
	nodes   *Nodes
	shards  *Shards
	beacons *Beacons
}

// Unlink removes targets with their leases. In a Cluster an unavailable master is the failure of
// its targets, and the others are unlinked. An error is an *Outage or a *Loss: some targets may be
// gone, none counts as done, and unlinking all of them again is harmless. It makes one round trip
// per 10,000 names or so, and one more if a target has Hold.
func (u *Unlinker) Unlink(ctx context.Context, targets []Target) (Unlinked, error) {
	began := time.Now()
	units := make([]unit, len(targets))
	for i, t := range targets {
		units[i] = newUnit(i, t.Key)
	}
	var refused []refusedUnit
	if slices.ContainsFunc(targets, func(t Target) bool { return t.Hold > 0 }) {
		var err error
		if refused, err = u.hold(ctx, units, func(index int) time.Duration { return targets[index].Hold }); err != nil {
			return Unlinked{}, err
		}
	}
	t, err := u.unlink(ctx, &u.beacons.unlinks, units)
	if err == nil && len(t.away) > 0 && u.shards.allAway() {
		err = t.away[0].err
	}
	if err != nil {
		return Unlinked{}, err
	}
	return Unlinked{
		Failures: failures(slices.Concat(refused, t.refused, t.away)), Position: t.position,
		Born: t.born, Readings: t.readings, Began: began, Ended: time.Now(),
	}, nil
}

// A refusedUnit is a unit that Redis refused, or whose master is unavailable, and the reason.
type refusedUnit struct {
	unit
	err error // an error reply, or an *Outage
}

// failure returns a *Refusal or an *Outage.
func (r refusedUnit) failure() error {
	if isOutage(r.err) {
		return r.err
	}
	return &Refusal{Key: r.key, Err: r.err}
}

// failures returns the first failure of each index, by ascending index.
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

// unlink removes units, in pipelines of a beacon writer. If it returns an error, the tally has what
// was done before it. It skips tombstones, which a row or an index set may name.
func (u *Unlinker) unlink(ctx context.Context, l *beaconWriter, units []unit) (t tally, err error) {
	t.writer = l
	if slices.ContainsFunc(units, unit.isTombstone) {
		units = slices.DeleteFunc(slices.Clone(units), unit.isTombstone)
	}
	if err := u.send(ctx, &t, u.chunks(units)); err != nil {
		return t, err
	}
	// Which units of the refused chunks are at fault shows when each goes alone.
	if err := u.send(ctx, &t, oneByOne(t.unclear)); err != nil {
		return t, err
	}
	if err := u.unlinkSplit(ctx, &t); err != nil {
		return t, err
	}
	return t, u.explainRefusals(ctx, t.refused)
}

// send sends chunks, in as many pipelines as it takes.
func (u *Unlinker) send(ctx context.Context, t *tally, chunks []chunk) error {
	for len(chunks) > 0 {
		var round []chunk
		round, chunks = nextRound(chunks)
		round, err := u.skipAway(ctx, t, round)
		if err != nil {
			return err
		}
		commands := make([]redis.Cmder, len(round))
		for i, c := range round {
			commands[i] = c.command(ctx)
		}
		if err := t.send(ctx, u.beacons, commands); err != nil {
			return err
		}
		for i, c := range round {
			err := t.count(c, commands[i].(*redis.IntCmd))
			if err == nil {
				continue
			}
			o := u.shards.shardOutage(ctx, err)
			if o == nil {
				return u.nodes.outage(ctx, err)
			}
			if err := u.shards.markAwayFor(ctx, c[0].key, o); err != nil {
				return err
			}
			t.addAway(c, o)
		}
	}
	return nil
}

// skipAway leaves out the chunks whose master is unavailable.
func (u *Unlinker) skipAway(ctx context.Context, t *tally, chunks []chunk) ([]chunk, error) {
	if len(u.shards.Away()) == 0 {
		return chunks, nil
	}
	var present []chunk
	for _, c := range chunks {
		switch away, err := u.shards.awayFor(ctx, c[0].key); {
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

// unlinkSplit removes the units of split chunks name by name, which works during the migration of a
// slot. All leases are deleted before the first key: in one pipeline, a redirected lease would
// arrive after its key, and a value that a reader stored between the two would stay.
func (u *Unlinker) unlinkSplit(ctx context.Context, t *tally) error {
	var leases, keys []unit
	for _, one := range t.split {
		if one.lease != "" {
			leases = append(leases, unit{index: one.index, key: one.lease})
		}
		keys = append(keys, unit{index: one.index, key: one.key})
	}
	if err := u.send(ctx, t, oneByOne(leases)); err != nil {
		return err
	}
	return u.send(ctx, t, oneByOne(keys))
}
