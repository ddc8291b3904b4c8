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

const (
	// largeSet is how many members a set may have that TakeSets takes: one page.
	largeSet = 1000
	// roundMembers is how many members TakeSets has in memory, and in one pipeline, by what their
	// sets said of their sizes.
	roundMembers = maxNamesPerPipeline / 2
	// leftoverPage is the COUNT for a private set of unknown size.
	leftoverPage = 100
	// maxTries is how often TakeSets looks at one set before it leaves it to TakeSet.
	maxTries = 4
)

// A SetRequest names a set and the work that it is taken for: see TakeSet.
type SetRequest struct {
	Set string
	ID  uint64
}

// TakenSets is the result of TakeSets.
type TakenSets struct {
	Sets     []SetResult // one per request, in the same order
	Position Position    // the place after the last member: see Survived
}

// A SetResult is the result of one set. Without Large and Err the set is gone.
type SetResult struct {
	Members int64 // that were found
	// it has more members than a page, and is left to TakeSet with those that it still has
	Large bool
	// Err is a *Refusal, as of TakeSet, or in Cluster the *Outage of the set's slot or master, or
	// of a member's.
	Err error
}

// TakeSets does the same as TakeSet for many sets, in a few pipelines for all of them: some hundred
// sets cost hardly more round trips than one. It leaves sets of more than 1,000 members, and sets
// that keep changing, to TakeSet. It has at most some 10,000 members in memory.
//
// It calls gone with the members of many sets together. An error of one set is in its Err. The
// error is an *Outage, a *Loss or the error of gone. The calls may then be done in part, and
// repeating them is harmless.
func (s *Sets) TakeSets(ctx context.Context, requests []SetRequest, gone func(members []string) error) (TakenSets, error) {
	defer s.budget.busy()()
	batch := &setBatch{taker: s, gone: gone, unlinked: unlinkResult{writer: &s.beacons.sweeps}, pace: s.budget.newPace()}
	batch.sets = make([]*smallSet, len(requests))
	for i, r := range requests {
		batch.sets[i] = &smallSet{name: r.Set, private: privateName(r.Set, r.ID), size: -1}
	}
	err := batch.emptyAll(ctx)
	out := TakenSets{Sets: make([]SetResult, len(batch.sets)), Position: batch.unlinked.position}
	for i, one := range batch.sets {
		out.Sets[i] = one.SetResult
	}
	return out, err
}

// A setBatch is one TakeSets under way.
type setBatch struct {
	taker    *Sets
	gone     func(members []string) error
	unlinked unlinkResult
	pace     *pace
	sets     []*smallSet
}

// emptyAll continues until nothing is left to do.
func (b *setBatch) emptyAll(ctx context.Context) error {
	for {
		pending := slices.DeleteFunc(slices.Clone(b.sets), func(s *smallSet) bool { return s.over })
		if len(pending) == 0 {
			return nil
		}
		if err := b.round(ctx, pending); err != nil {
			return err
		}
		if err := b.pace.rest(ctx); err != nil {
			return b.taker.nodes.outage(ctx, err)
		}
	}
}

// round takes as many sets as fit into a round.
func (b *setBatch) round(ctx context.Context, pending []*smallSet) error {
	began := time.Now()
	if err := b.askSizes(ctx, pending); err != nil {
		return err
	}
	chosen := choose(pending)
	if err := b.move(ctx, chosen); err != nil {
		return err
	}
	names, err := b.unlink(ctx, chosen)
	if err != nil {
		return err
	}
	b.pace.spent(time.Since(began)) // with the time on the wire: too gentle rather than too hard
	if len(names) > 0 {
		if err := b.gone(names); err != nil {
			return err
		}
	}
	began = time.Now()
	if err := b.forget(ctx, chosen); err != nil {
		return err
	}
	b.pace.spent(time.Since(began))
	return nil
}

// askSizes asks for the sizes that are not known, and so what is not a set.
func (b *setBatch) askSizes(ctx context.Context, sets []*smallSet) error {
	var asked []*smallSet
	var commands []redis.Cmder
	for _, s := range sets {
		away, err := b.taker.shards.awayFor(ctx, s.name)
		switch {
		case err != nil:
			return err
		case away != nil:
			s.fail(away)
		case s.size < 0:
			asked = append(asked, s)
			commands = append(commands, redis.NewIntCmd(ctx, "scard", s.name))
		}
	}
	if len(asked) == 0 {
		return nil
	}
	if err := b.unlinked.send(ctx, b.taker.beacons, commands); err != nil {
		return err
	}
	for i, s := range asked {
		size, err := commands[i].(*redis.IntCmd).Result()
		if err == nil {
			s.size = size
		} else if err := b.fault(ctx, s, s.name, err); err != nil {
			return err
		}
	}
	return nil
}

// choose returns the sets of the next round, at least one unless all have ended.
func choose(pending []*smallSet) []*smallSet {
	var chosen []*smallSet
	members := int64(0)
	for _, s := range pending {
		if s.size > largeSet || s.tries == maxTries {
			s.Large, s.over = true, true
		}
		if s.over {
			continue
		}
		if members += max(s.size, 1); members > roundMembers && len(chosen) > 0 {
			break
		}
		chosen = append(chosen, s)
		s.tries++
	}
	return chosen
}

// move renames the sets that exist, and reads the private ones.
func (b *setBatch) move(ctx context.Context, chosen []*smallSet) error {
	if len(chosen) == 0 {
		return nil
	}
	var commands []redis.Cmder
	for _, s := range chosen {
		s.rename = nil
		if s.size > 0 && !s.taken {
			s.rename = redis.NewBoolCmd(ctx, "renamenx", s.name, s.private)
			commands = append(commands, s.rename)
		}
		count := max(2*s.size, leftoverPage) // a table is at least half full, or has shrunk
		s.scan = redis.NewScanCmd(ctx, nil, "sscan", s.private, 0, "count", count)
		commands = append(commands, s.scan)
	}
	if err := b.unlinked.send(ctx, b.taker.beacons, commands); err != nil {
		return err
	}
	for _, s := range chosen {
		if err := b.moved(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// moved records the answers about one set. A set that was not renamed, because the private name is
// taken or the set is gone, is checked again.
func (b *setBatch) moved(ctx context.Context, s *smallSet) error {
	s.found, s.failed = nil, nil
	names, cursor, err := s.scan.Result()
	if err != nil {
		return b.fault(ctx, s, s.private, err)
	}
	s.found = names
	s.Members += int64(len(names))
	done := cursor == 0
	if s.rename != nil {
		renamed, err := s.rename.Result()
		// a missing set has no separate error code
		if err != nil && stateOf(err) != StateError {
			s.found = nil // another attempt begins with these
			return b.fault(ctx, s, s.name, err)
		}
		s.taken = renamed
	}
	s.over = done && (s.taken || s.size == 0 && len(names) == 0)
	if !s.taken {
		s.size = -1
	}
	return nil
}

// unlink unlinks what was found, and returns what is gone.
func (b *setBatch) unlink(ctx context.Context, chosen []*smallSet) (names []string, err error) {
	for _, s := range chosen {
		names = append(names, s.found...)
	}
	if len(names) == 0 {
		return nil, nil
	}
	failed, err := b.taker.unlinkMembers(ctx, &b.unlinked, names)
	if err != nil {
		return nil, err
	}
	rest, from := failed, 0
	for _, s := range chosen {
		for len(rest) > 0 && rest[0].Index < from+len(s.found) {
			s.failed = append(s.failed, Failure{Index: rest[0].Index - from, Err: rest[0].Err})
			rest = rest[1:]
		}
		from += len(s.found)
		if len(s.failed) > 0 {
			s.fail(s.failed[0].Err)
		}
	}
	return without(names, failed), nil
}

// forget removes exactly the unlinked members from the private sets.
func (b *setBatch) forget(ctx context.Context, chosen []*smallSet) error {
	var commands []redis.Cmder
	var of []*smallSet
	for _, s := range chosen {
		own := forgetting(ctx, s.private, without(s.found, s.failed))
		commands = append(commands, own...)
		of = append(of, slices.Repeat([]*smallSet{s}, len(own))...)
		s.found, s.failed = nil, nil
	}
	if len(commands) == 0 {
		return nil
	}
	if err := b.unlinked.send(ctx, b.taker.beacons, commands); err != nil {
		return err
	}
	for i, c := range commands {
		if c.Err() == nil {
			continue
		}
		if err := b.fault(ctx, of[i], of[i].private, c.Err()); err != nil {
			return err
		}
	}
	return nil
}

// fault makes an error reply the set's own error, unless it is one of all Redis.
func (b *setBatch) fault(ctx context.Context, s *smallSet, key string, err error) error {
	if isRefusal(err) {
		s.fail(&Refusal{Key: key, Err: err})
		return nil
	}
	if o := b.taker.shards.shardOutage(ctx, err); o != nil {
		s.fail(o)
		return nil
	}
	return b.taker.nodes.outage(ctx, err)
}

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
	t := unlinkResult{writer: &s.beacons.sweeps}
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

func (s *Sets) takeSet(ctx context.Context, t *unlinkResult, set, private string, gone func(members []string) error) (members int64, err error) {
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
func (s *Sets) drain(ctx context.Context, t *unlinkResult, private string, gone func(members []string) error) (members int64, err error) {
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
		names, cursor, err = conn.SScan(ctx, private, cursor, "", pace.bucketsDue()).Result()
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
func (s *Sets) page(ctx context.Context, t *unlinkResult, private string, names []string, gone func(members []string) error) (refused, err error) {
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
	if err := firstError(commands); err != nil {
		return s.refusal(ctx, private, err)
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
func (s *Sets) unlinkMembers(ctx context.Context, tally *unlinkResult, names []string) ([]Failure, error) {
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
