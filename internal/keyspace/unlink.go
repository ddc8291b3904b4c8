package keyspace

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/protocol"
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
	slices.SortStableFunc(refused, func(a, b refusedUnit) int { return a.index - b.index })
	var list []Failure
	for _, r := range refused {
		if n := len(list); n == 0 || list[n-1].Index != r.index {
			list = append(list, Failure{Index: r.index, Err: r.failure()})
		}
	}
	return list
}

// unlink removes units, in pipelines of a beacon writer. If it returns an error, the result has what
// was done before it. It skips tombstones, which a row or an index set may name.
func (u *Unlinker) unlink(ctx context.Context, l *beaconWriter, units []unit) (t unlinkResult, err error) {
	t.writer = l
	if slices.ContainsFunc(units, unit.isTombstone) {
		units = slices.DeleteFunc(slices.Clone(units), unit.isTombstone)
	}
	if err := u.sendChunks(ctx, &t, u.chunks(units)); err != nil {
		return t, err
	}
	// Which units of the refused chunks are at fault shows when each goes alone.
	if err := u.sendChunks(ctx, &t, oneByOne(t.unclear)); err != nil {
		return t, err
	}
	if err := u.unlinkSplit(ctx, &t); err != nil {
		return t, err
	}
	return t, u.explainRefusals(ctx, t.refused)
}

// sendChunks sends chunks, in as many pipelines as it takes.
func (u *Unlinker) sendChunks(ctx context.Context, t *unlinkResult, chunks []chunk) error {
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
			failed := t.recordReply(c, commands[i].(*redis.IntCmd))
			if failed == nil {
				continue
			}
			o, err := u.shards.blame(ctx, c[0].key, failed)
			if err != nil {
				return err
			}
			t.addAway(c, o)
		}
	}
	return nil
}

// skipAway leaves out the chunks whose master is unavailable.
func (u *Unlinker) skipAway(ctx context.Context, t *unlinkResult, chunks []chunk) ([]chunk, error) {
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
func (u *Unlinker) unlinkSplit(ctx context.Context, t *unlinkResult) error {
	var leases, keys []unit
	for _, one := range t.split {
		if one.lease != "" {
			leases = append(leases, unit{index: one.index, key: one.lease})
		}
		keys = append(keys, unit{index: one.index, key: one.key})
	}
	if err := u.sendChunks(ctx, t, oneByOne(leases)); err != nil {
		return err
	}
	return u.sendChunks(ctx, t, oneByOne(keys))
}

const (
	// maxNamesPerUnlink is the largest number of names of one UNLINK. Redis serves no other client
	// meanwhile: 500 names take a quarter of a millisecond.
	maxNamesPerUnlink = 500
	// maxNamesPerPipeline and maxBytesPerPipeline bound one pipeline. It must take much less than
	// one Timeout: 10,000 names take Redis some 10 ms, and a megabyte takes a slow network 80 ms.
	maxNamesPerPipeline = 10_000
	maxBytesPerPipeline = 1 << 20
)

// A chunk is the units of one UNLINK, in Cluster all of one slot.
type chunk []unit

// command builds the UNLINK, each lease before its key.
func (c chunk) command(ctx context.Context) *redis.IntCmd {
	args := make([]any, 1, 1+2*len(c))
	args[0] = "unlink"
	for _, u := range c {
		if u.lease != "" {
			args = append(args, u.lease)
		}
		args = append(args, u.key)
	}
	return redis.NewIntCmd(ctx, args...)
}

// size counts names and bytes.
func (c chunk) size() (names, bytes int) {
	for _, u := range c {
		n, b := u.size()
		names, bytes = names+n, bytes+b
	}
	return names, bytes
}

// chunks cuts units into commands.
func (u *Unlinker) chunks(units []unit) []chunk {
	if u.nodes.cluster == nil {
		return cut(nil, units)
	}
	bySlot := make([]uint64, len(units)) // slot, then position
	for i, u := range units {
		bySlot[i] = uint64(protocol.Slot(u.key))<<32 | uint64(i)
	}
	slices.Sort(bySlot)
	sorted := make([]unit, len(units))
	for i, s := range bySlot {
		sorted[i] = units[uint32(s)]
	}
	var chunks []chunk
	for start, i := 0, 1; i <= len(sorted); i++ {
		if i == len(sorted) || bySlot[i]>>32 != bySlot[start]>>32 {
			chunks = cut(chunks, sorted[start:i])
			start = i
		}
	}
	return chunks
}

// cut appends chunks of at most maxNamesPerUnlink names and maxBytesPerPipeline bytes, and of one
// unit at least.
func cut(chunks []chunk, units []unit) []chunk {
	start, names, bytes := 0, 0, 0
	for i, u := range units {
		n, b := u.size()
		if i > start && (names+n > maxNamesPerUnlink || bytes+b > maxBytesPerPipeline) {
			chunks = append(chunks, units[start:i])
			start, names, bytes = i, 0, 0
		}
		names, bytes = names+n, bytes+b
	}
	if start < len(units) {
		chunks = append(chunks, units[start:])
	}
	return chunks
}

// oneByOne makes a chunk of each unit.
func oneByOne(units []unit) []chunk {
	chunks := make([]chunk, len(units))
	for i := range units {
		chunks[i] = units[i : i+1]
	}
	return chunks
}

// nextRound splits off the chunks of the next pipeline, at least one.
func nextRound(chunks []chunk) (round, rest []chunk) {
	var names, bytes int
	for i, c := range chunks {
		n, b := c.size()
		names, bytes = names+n, bytes+b
		if i > 0 && (names > maxNamesPerPipeline || bytes > maxBytesPerPipeline) {
			return chunks[:i], chunks[i:]
		}
	}
	return chunks, nil
}

// An unlinkResult is the result of unlinking units so far.
type unlinkResult struct {
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
func (t *unlinkResult) addAway(c chunk, o *Outage) {
	for _, u := range c {
		t.away = append(t.away, refusedUnit{u, o})
	}
}

// send sends one pipeline. All of a result's pipelines belong to one epoch: another one means that
// the writer has had a Loss, and some may be lost.
func (t *unlinkResult) send(ctx context.Context, b *Beacons, commands []redis.Cmder) error {
	born := t.birth(b)
	at, err := b.writeBeacon(ctx, t.writer, commands, born)
	if err != nil {
		return err
	}
	if born != nil {
		t.born, t.readings = born.leastTime(&b.nodes.clock)
	}
	return t.follow(at)
}

// birth returns the request for the time in the first pipeline of an Unlink, and nil in any other.
func (t *unlinkResult) birth(b *Beacons) *birth {
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
func (t *unlinkResult) follow(b Position) error {
	switch {
	case b.Epoch == "":
		return nil
	case t.position.Epoch != "" && t.position.Epoch != b.Epoch:
		return &Loss{Position: t.position}
	}
	t.position = b
	return nil
}

// recordReply records the reply to one chunk. The error is not the fault of a key.
func (t *unlinkResult) recordReply(c chunk, reply *redis.IntCmd) error {
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

// A unit is a key and the name of its lease, which are always unlinked by the same command. Lease
// is empty where the key can have none.
type unit struct {
	index      int // of the target or pattern that it comes from
	key, lease string
}

func newUnit(index int, key string) unit {
	lease, _ := protocol.LeaseKey(key)
	return unit{index: index, key: key, lease: lease}
}

// found returns the unit to unlink for a name that a scan found: the key with its lease if the key
// matches, even if only the lease exists. No pattern matches a tombstone, nor another of unstale's
// own names, such as an index set that is being cleared.
func found(m *Matcher, name string) (unit, bool) {
	if protocol.IsHoldKey(name) || strings.HasPrefix(name, protocol.Prefix) {
		return unit{}, false
	}
	if index := m.First(name); index >= 0 {
		return newUnit(index, name), true
	}
	if inner, isLease := protocol.InnerKey(name); isLease {
		if index := m.First(inner); index >= 0 {
			return unit{index: index, key: inner, lease: name}, true
		}
	}
	return unit{}, false
}

func (u unit) isTombstone() bool { return protocol.IsHoldKey(u.key) }

// size counts names and bytes.
func (u unit) size() (names, bytes int) {
	if u.lease == "" {
		return 1, len(u.key)
	}
	return 2, len(u.lease) + len(u.key)
}

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
		failed := firstError(t.commands[:])
		if isRefusal(failed) {
			refused = append(refused, refusedUnit{*t.of, failed})
		} else if failed != nil {
			if _, err := u.shards.blame(ctx, t.of.key, failed); err != nil {
				return nil, err
			}
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

// sameSlotTag returns a text that, as a hash tag, leads to the slot of key. It is the tag of the
// key or the key itself, which is readable. A key with a } but no tag cannot be a tag, so it gets
// the smallest number with the same slot: some 16,384 tries, well below a millisecond.
func sameSlotTag(key string) string {
	if tag, ok := protocol.HashTag(key); ok {
		return tag
	}
	if key != "" && !strings.Contains(key, "}") {
		return key
	}
	want := protocol.Slot(key)
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); protocol.Slot(tag) == want {
			return tag
		}
	}
}
