package keyspace

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// setPrefix is the prefix of the private names of sets that are being cleared.
const setPrefix = protocol.SetPrefix

// privateName returns the name that a set is renamed to. It is in the same slot, since RENAMENX
// cannot cross slots. It derives from the ID of the work: another worker that continues the work
// finds the set.
func privateName(set string, id uint64) string {
	return setPrefix + "{" + sameSlotTag(set) + "}:" + strconv.FormatUint(id, 10)
}

// Sets clears index sets: it unlinks their members, and then the set.
type Sets struct {
	nodes    *Nodes
	shards   *Shards
	beacons  *Beacons
	unlinker *Unlinker
	budget   *budget
}

// TakeSet unlinks every member of an index set, with its lease, and the set itself. Once the
// members of a page are unlinked, it calls gone with them, for publishing. An error of gone ends
// the call, and the next one repeats those members. It counts the members that it found, including
// those of an interrupted call. A missing set has none.
//
// The set is first renamed to a private name that derives from id. Members that are added meanwhile
// then go to a new set, and none is lost. The caller must have stored set and id durably, and call
// again with the same ones until it succeeds: the rest under the private name is then finished
// first. The set is read in pages, at any size, within Options.SweepShare of Redis time. IDs of
// different callers may collide: their sets are cleared one by one. Two concurrent callers with the
// same set and id affect only each other's counts.
//
// The error is an *Outage, a *Loss, the error of gone, or a *Refusal if set is not a set or Redis
// refused a member. A refused member stays in the private set, which keeps the time to live of the
// set.
func (s *Sets) TakeSet(ctx context.Context, set string, id uint64, gone func(members []string) error) (TakenSet, error) {
	defer s.budget.busy()()
	t := tally{writer: &s.beacons.sweeps}
	err := t.send(ctx, s.beacons, nil)
	var members int64
	if err == nil {
		members, err = s.takeSet(ctx, &t, set, privateName(set, id), gone)
	}
	if err == nil {
		err = t.send(ctx, s.beacons, nil)
	}
	return TakenSet{Members: members, Position: t.position}, err
}

// TakenSet is the result of TakeSet.
type TakenSet struct {
	Members  int64
	Position Position // the place after the last member: see Survived
}

func (s *Sets) takeSet(ctx context.Context, t *tally, set, private string, gone func(members []string) error) (members int64, err error) {
	for taken := false; ; {
		n, err := s.drain(ctx, t, private, gone)
		members += n
		if err != nil || taken {
			return members, err
		}
		var absent bool
		if taken, absent, err = s.takeAway(ctx, set, private); err != nil || absent {
			return members, err
		}
	}
}

// takeAway renames set to private, or finds that it is gone. It does neither where there may be
// something under the private name to be drained first: another caller's set, or this one, renamed
// by an attempt whose answer got lost.
func (s *Sets) takeAway(ctx context.Context, set, private string) (taken, absent bool, err error) {
	// SCARD refuses what is not a set, which RENAMENX would take away.
	size, err := s.nodes.client.SCard(ctx, set).Result()
	switch {
	case err != nil:
		return false, false, s.refusal(ctx, set, err)
	case size == 0:
		return false, true, nil
	}
	taken, err = s.nodes.client.RenameNX(ctx, set, private).Result()
	if err == nil {
		return taken, false, nil
	}
	// Redis has no separate error code for a set that is gone.
	if size, again := s.nodes.client.SCard(ctx, set).Result(); again == nil && size == 0 {
		return false, false, nil
	}
	return false, false, s.refusal(ctx, set, err)
}

// drain unlinks the members of a private set, and removes from it what it has unlinked and nothing
// else: another taker may have renamed a new set to the private name meanwhile. A set that is left
// empty does not exist. It keeps to one connection: behind another one there may be another server,
// where a cursor means nothing.
func (s *Sets) drain(ctx context.Context, t *tally, private string, gone func(members []string) error) (members int64, err error) {
	node, err := s.nodes.master(ctx, private)
	if err != nil {
		return 0, err
	}
	conn := node.Conn()
	defer conn.Close()
	var refused error
	pace := s.budget.newPace()
	for cursor, first := uint64(0), true; cursor != 0 || first; first = false {
		var names []string
		began := time.Now()
		names, cursor, err = conn.SScan(ctx, private, cursor, "", pace.count()).Result()
		if err != nil {
			return members, s.refusal(ctx, private, err)
		}
		// with the time on the wire: too gentle rather than too hard
		pace.scanned(time.Since(began))
		members += int64(len(names))
		began = time.Now()
		bad, err := s.page(ctx, t, private, names, gone)
		if err != nil {
			return members, err
		}
		refused = cmp.Or(refused, bad)
		pace.spent(time.Since(began))
		if err := pace.rest(ctx); err != nil {
			return members, s.nodes.outage(ctx, err)
		}
	}
	return members, refused
}

// page unlinks some members of a private set. Refused is the *Refusal of the first of those that
// Redis refused, which stay in the set.
func (s *Sets) page(ctx context.Context, t *tally, private string, names []string, gone func(members []string) error) (refused, err error) {
	failed, err := s.unlinkMembers(ctx, t, names)
	if err != nil {
		return nil, err
	}
	for _, f := range failed {
		if isOutage(f.Err) {
			return nil, f.Err
		}
		refused = cmp.Or(refused, f.Err)
	}
	names = without(names, failed)
	if len(names) == 0 {
		return refused, nil
	}
	if err := gone(names); err != nil {
		return nil, err
	}
	return refused, s.forget(ctx, private, names)
}

// forget removes members from a private set.
func (s *Sets) forget(ctx context.Context, private string, members []string) error {
	commands := forgetting(ctx, private, members)
	if err := s.nodes.exec(ctx, s.nodes.client, commands); err != nil {
		return err
	}
	for _, c := range commands {
		if err := c.Err(); err != nil {
			return s.refusal(ctx, private, err)
		}
	}
	return nil
}

// membersPerRemoval is how many members one SREM has at most, for the reason of maxNamesPerUnlink.
const membersPerRemoval = 500

// forgetting returns the commands that remove members from a private set.
func forgetting(ctx context.Context, private string, members []string) []redis.Cmder {
	var commands []redis.Cmder
	for part := range slices.Chunk(members, membersPerRemoval) {
		args := make([]any, 2, 2+len(part))
		args[0], args[1] = "srem", private
		for _, m := range part {
			args = append(args, m)
		}
		commands = append(commands, redis.NewIntCmd(ctx, args...))
	}
	return commands
}

// unlinkMembers unlinks members with their leases. The failures are those that Redis refused, and
// in a Cluster those whose master is unavailable; the first of the latter precedes all refusals.
// The error is an *Outage or a *Loss.
func (s *Sets) unlinkMembers(ctx context.Context, tally *tally, names []string) ([]Failure, error) {
	units := make([]unit, len(names))
	for i, name := range names {
		units[i] = newUnit(i, name)
	}
	t, err := s.unlinker.unlink(ctx, tally.writer, units)
	if err == nil {
		err = tally.follow(t.position)
	}
	return failures(slices.Concat(t.refused, t.away)), err
}

// without returns the names that did not fail.
func without(names []string, failed []Failure) []string {
	if len(failed) == 0 {
		return names
	}
	var rest []string
	for i, name := range names {
		if len(failed) > 0 && failed[0].Index == i {
			failed = failed[1:]
			continue
		}
		rest = append(rest, name)
	}
	return rest
}

// refusal makes a *Refusal or an *Outage of the reply to a command on one key.
func (s *Sets) refusal(ctx context.Context, key string, err error) error {
	if isRefusal(err) {
		return &Refusal{Key: key, Err: err}
	}
	return s.nodes.outage(ctx, err)
}
