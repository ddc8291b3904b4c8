package keyspace

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// setPrefix begins the private names of sets that are being taken apart.
const setPrefix = "unstale:set:"

// privateName is the name that a set is renamed to: in the same slot, since RENAMENX cannot cross slots, and derived
// from the id of the work, so that whoever takes the work up again finds it.
func privateName(set string, id uint64) string {
	return setPrefix + "{" + sameSlotTag(set) + "}:" + strconv.FormatUint(id, 10)
}

// TakeSet unlinks every member of an index set, with its lease, and the set itself. It calls gone with the members of
// each page once they are unlinked, so that they can be published; an error of gone ends the call, and the next one
// starts those members over. It counts the members that it found, those of an interrupted call included where there was
// one. A set that does not exist has none.
//
// The set is first renamed to a private name that derives from id, so that members which are added meanwhile go to a
// new set and none is lost. The caller must have noted set and id where a crash cannot take them, and call again with
// the same ones until it has succeeded: what is left under the private name is then finished before the set is looked
// for again. It is read in pages, however large it is, within Options.SweepShare of Redis' time. Ids of different
// callers may collide: their sets are taken apart one after the other. Two callers with the same set and id at a time
// disturb each other in nothing but their counts.
//
// The error is an *Outage, a *Loss, gone's own, or a *Refusal where set is not a set or Redis refused a member. A
// refused member stays in the private set, which keeps the time to live that the set had.
func (k *Keyspace) TakeSet(ctx context.Context, set string, id uint64, gone func(members []string) error) (TakenSet, error) {
	defer k.busy()()
	t := tally{writer: &k.sweeps}
	err := t.send(ctx, k, nil)
	var members int64
	if err == nil {
		members, err = k.takeSet(ctx, &t, set, privateName(set, id), gone)
	}
	if err == nil {
		err = t.send(ctx, k, nil)
	}
	return TakenSet{Members: members, Position: t.position}, err
}

// TakenSet says what came of TakeSet.
type TakenSet struct {
	Members  int64
	Position Position // the place after the last member: see Survived
}

func (k *Keyspace) takeSet(ctx context.Context, t *tally, set, private string, gone func(members []string) error) (members int64, err error) {
	for taken := false; ; {
		n, err := k.drain(ctx, t, private, gone)
		members += n
		if err != nil || taken {
			return members, err
		}
		var absent bool
		if taken, absent, err = k.takeAway(ctx, set, private); err != nil || absent {
			return members, err
		}
	}
}

// takeAway renames set to private, or finds that it is gone. It does neither where there may be something under the
// private name to be drained first: another caller's set, or this one, renamed by an attempt whose answer got lost.
func (k *Keyspace) takeAway(ctx context.Context, set, private string) (taken, absent bool, err error) {
	// SCARD refuses what is not a set, which RENAMENX would take away.
	size, err := k.client.SCard(ctx, set).Result()
	switch {
	case err != nil:
		return false, false, k.refusal(ctx, set, err)
	case size == 0:
		return false, true, nil
	}
	taken, err = k.client.RenameNX(ctx, set, private).Result()
	if err == nil {
		return taken, false, nil
	}
	// That the set has gone since is an error without a code of its own.
	if size, again := k.client.SCard(ctx, set).Result(); again == nil && size == 0 {
		return false, false, nil
	}
	return false, false, k.refusal(ctx, set, err)
}

// drain unlinks the members of a private set, and removes from it what it has unlinked and nothing else: another taker
// may have renamed a new set to the private name meanwhile. A set that is left empty does not exist. It keeps to one
// connection: behind another one there may be another server, where a cursor means nothing.
func (k *Keyspace) drain(ctx context.Context, t *tally, private string, gone func(members []string) error) (members int64, err error) {
	node, err := k.master(ctx, private)
	if err != nil {
		return 0, err
	}
	conn := node.Conn()
	defer conn.Close()
	var refused error
	pace := k.newPace()
	for cursor, first := uint64(0), true; cursor != 0 || first; first = false {
		var names []string
		began := time.Now()
		names, cursor, err = conn.SScan(ctx, private, cursor, "", pace.count()).Result()
		if err != nil {
			return members, k.refusal(ctx, private, err)
		}
		pace.scanned(time.Since(began)) // with the time on the wire: too gentle rather than too hard
		members += int64(len(names))
		began = time.Now()
		bad, err := k.page(ctx, t, private, names, gone)
		if err != nil {
			return members, err
		}
		refused = cmp.Or(refused, bad)
		pace.spent(time.Since(began))
		if err := pace.rest(ctx); err != nil {
			return members, k.outage(ctx, err)
		}
	}
	return members, refused
}

// page unlinks some members of a private set. Refused is the *Refusal of the first of those that Redis refused, which
// stay in the set.
func (k *Keyspace) page(ctx context.Context, t *tally, private string, names []string, gone func(members []string) error) (refused, err error) {
	failed, err := k.unlinkMembers(ctx, t, names)
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
	return refused, k.forget(ctx, private, names)
}

// forget removes members from a private set.
func (k *Keyspace) forget(ctx context.Context, private string, members []string) error {
	commands := forgetting(ctx, private, members)
	if err := k.exec(ctx, k.client, commands); err != nil {
		return err
	}
	for _, c := range commands {
		if err := c.Err(); err != nil {
			return k.refusal(ctx, private, err)
		}
	}
	return nil
}

// membersPerRemoval is how many members one SREM has at most, for the reason of maxNamesPerUnlink.
const membersPerRemoval = 500

// forgetting are the commands that remove members from a private set.
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

// unlinkMembers unlinks members with their leases. The failures are those that Redis refused, and in Cluster those
// whose master is away, of which the first one comes before any refusal. The error is an *Outage or a *Loss.
func (k *Keyspace) unlinkMembers(ctx context.Context, tally *tally, names []string) ([]Failure, error) {
	units := make([]unit, len(names))
	for i, name := range names {
		units[i] = newUnit(i, name)
	}
	t, err := k.unlink(ctx, tally.writer, units)
	if err == nil {
		err = tally.follow(t.position)
	}
	return failures(slices.Concat(t.refused, t.away)), err
}

// without are the names that did not fail.
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
func (k *Keyspace) refusal(ctx context.Context, key string, err error) error {
	if isRefusal(err) {
		return &Refusal{Key: key, Err: err}
	}
	return k.outage(ctx, err)
}
