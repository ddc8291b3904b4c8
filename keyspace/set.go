package keyspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// setPrefix begins the private names of sets that are being taken apart.
const setPrefix = "unstale:set:"

// privateName is the name that a set is renamed to: in the same slot, since
// RENAMENX can't cross slots, and derived from the id of the work, so that
// whoever takes the work up again finds it.
func privateName(set string, id uint64) string {
	return setPrefix + "{" + sameSlotTag(set) + "}:" + strconv.FormatUint(id, 10)
}

// TakeSet unlinks every member of an index set, with its lease, and the set
// itself. It calls gone with the members of each page once they are unlinked,
// so that they can be published; an error of gone ends the call, and the next
// one starts the members over. It counts the members that it found, those of an
// interrupted call included where there was one. A set that doesn't exist has
// none.
//
// The set is first renamed to a private name that derives from id, so that
// members which are added meanwhile go to a new set and none is lost. The
// caller must have noted set and id where a crash can't take them, and call
// again with the same ones until it has succeeded: what is left under the
// private name is then finished before the set is looked for again. It is read
// in pages, however large it is, within Options.SweepShare of Redis' time. Ids of different callers may collide: their
// sets are taken apart one after the other.
//
// The error is an *Outage, a *Loss, gone's own, or a *Refusal where set is no set
// or Redis refused a member. A refused member stays in the private set, which keeps the time to
// live that the set had.
func (k *Keyspace) TakeSet(ctx context.Context, set string, id uint64, gone func(members []string) error) (TakenSet, error) {
	t := tally{lane: &k.sweeps}
	err := t.send(ctx, k, nil)
	var members int64
	if err == nil {
		members, err = k.takeSet(ctx, &t, set, privateName(set, id), gone)
	}
	if err == nil {
		err = t.send(ctx, k, nil)
	}
	return TakenSet{members, t.beat}, err
}

// TakenSet says what came of TakeSet.
type TakenSet struct {
	Members int64
	Beat    Beat // the place after the last member: see Survived
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

// takeAway renames set to private, or finds that it is gone. It does neither
// where there may be something under the private name to be drained first:
// another caller's set, or this one, renamed by an attempt whose answer got
// lost.
func (k *Keyspace) takeAway(ctx context.Context, set, private string) (taken, absent bool, err error) {
	what, err := k.client.Type(ctx, set).Result()
	switch {
	case err != nil:
		return false, false, k.refusal(ctx, set, err)
	case what == "none":
		return false, true, nil
	case what != "set":
		return false, false, &Refusal{Key: set, Err: fmt.Errorf("it is a %s and no set", what)}
	}
	taken, err = k.client.RenameNX(ctx, set, private).Result()
	if err == nil {
		return taken, false, nil
	}
	// That the set has gone since is an error without a code of its own.
	if what, again := k.client.Type(ctx, set).Result(); again == nil && what == "none" {
		return false, false, nil
	}
	return false, false, k.refusal(ctx, set, err)
}

// drain unlinks the members of a private set, and removes from it what it has
// unlinked and nothing else: another taker may have renamed a new set to the
// private name meanwhile. A set that is left empty does not exist. It keeps to
// one connection: behind another one there may be another server, where a cursor
// means nothing.
func (k *Keyspace) drain(ctx context.Context, t *tally, private string, gone func(members []string) error) (members int64, err error) {
	node, err := k.master(ctx, private)
	if err != nil {
		return 0, err
	}
	conn := node.Conn()
	defer conn.Close()
	var refused error
	pace := newPace(k.sweepShare)
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
		unlinked, err := k.unlinkMembers(ctx, t, names)
		pace.spent(time.Since(began))
		var refusal *Refusal
		switch {
		case errors.As(err, &refusal):
			refused = cmp.Or(refused, err)
		case err != nil:
			return members, err
		}
		if len(unlinked) > 0 {
			if err := gone(unlinked); err != nil {
				return members, err
			}
			began = time.Now()
			if err := k.forget(ctx, private, unlinked); err != nil {
				return members, err
			}
			pace.spent(time.Since(began))
		}
		if err := pace.rest(ctx); err != nil {
			return members, k.outage(ctx, err)
		}
	}
	return members, refused
}

// forget removes members from a private set.
func (k *Keyspace) forget(ctx context.Context, private string, members []string) error {
	var commands []redis.Cmder
	for part := range slices.Chunk(members, chunkNames) {
		args := make([]any, 2, 2+len(part))
		args[0], args[1] = "srem", private
		for _, m := range part {
			args = append(args, m)
		}
		commands = append(commands, redis.NewIntCmd(ctx, args...))
	}
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

// unlinkMembers unlinks members with their leases and returns those that are
// gone. The error is an *Outage, a *Loss, or the *Refusal of the first of the
// others.
func (k *Keyspace) unlinkMembers(ctx context.Context, pass *tally, names []string) (unlinked []string, err error) {
	units := make([]unit, len(names))
	for i, name := range names {
		units[i] = newUnit(i, name)
	}
	t, err := k.unlink(ctx, pass.lane, units)
	if err == nil {
		err = pass.follow(t.beat)
	}
	if err == nil && len(t.away) > 0 {
		err = t.away[0].err
	}
	if err != nil || len(t.refused) == 0 {
		return names, err
	}
	failed := failures(t.refused)
	for i, next := 0, 0; i < len(names); i++ {
		if next < len(failed) && failed[next].Index == i {
			next++
			continue
		}
		unlinked = append(unlinked, names[i])
	}
	return unlinked, failed[0].Err
}

// refusal makes a *Refusal or an *Outage of the reply to a command on one key.
func (k *Keyspace) refusal(ctx context.Context, key string, err error) error {
	if isRefusal(err) {
		return &Refusal{Key: key, Err: err}
	}
	return k.outage(ctx, err)
}
