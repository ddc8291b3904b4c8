package keyspace

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/protocol"
)

// shardsLife is how long the list of shards is remembered: asking costs a round trip. It is asked
// for again after an outage.
const shardsLife = time.Second

// awayLife is how long a master that did not answer counts as unavailable, in addition to the time
// that three commands may take to detect it again. CheckBeacon, called once per second, detects
// earlier whether it is available again, and waits for at most awayPing.
const (
	awayLife = 2 * time.Second
	awayPing = 500 * time.Millisecond
)

// leastTime is the time that a pipeline needs at least. With less, a master would look unavailable
// without having had a chance to answer.
const leastTime = 50 * time.Millisecond

var errNoTime = errors.New("no time is left to ask")

// A shard is a master of a Cluster. Outside of Cluster there is one, whose fields are empty.
type shard struct {
	tag  string // a hash tag whose slot the master has
	addr string
}

// Shards are the masters, and which of them are unavailable: that concerns only the keys of these
// masters.
type Shards struct {
	nodes *Nodes

	mu   sync.Mutex
	list []shard
	read time.Time
	away map[string]absence // by address
	life time.Duration      // of an absence
	// moved are the tags that are new because slots have moved, and since when: see followMoves.
	moved map[string]time.Time
	// changed is when the masters or their tags were last seen to differ from before.
	changed time.Time
	// complete: the last comparison found nothing missing, and no possible loss has occurred since.
	complete bool
	before   bool // complete was true before the comparisons that are not decided yet
	compares bool // some comparison has found nothing missing
}

// An absence is the reason why a master is unavailable, and since when it was not asked.
type absence struct {
	*Outage
	noted time.Time
}

// of returns the reason why a master is unavailable, or nil. The caller holds the lock.
func (s *Shards) of(addr string) *Outage {
	if a, ok := s.away[addr]; ok && time.Since(a.noted) < s.life {
		return a.Outage
	}
	return nil
}

// listShards lists the masters of a Cluster with their hash tags. A master that is replaced by its
// replica keeps its tag. If its slots move, a master may get another tag, and its beacon starts
// again under that tag: see followMoves.
func (s *Shards) listShards(ctx context.Context) ([]shard, error) {
	if s.nodes.cluster == nil {
		return []shard{{}}, nil
	}
	s.mu.Lock()
	list, read := s.list, s.read
	s.mu.Unlock()
	if time.Since(read) < shardsLife && !s.nodes.doubted.Load() {
		return list, nil
	}
	masters, err := s.nodes.masters(ctx)
	if err != nil {
		return nil, err
	}
	list = nil
	found := map[*redis.Client]bool{}
	for i := 0; len(found) < len(masters) && i < protocol.SlotCount; i++ {
		tag := strconv.Itoa(i)
		m, err := s.nodes.master(ctx, tag)
		if err != nil {
			return nil, err
		}
		if !found[m] {
			found[m] = true
			list = append(list, shard{tag, m.Options().Addr})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !slices.Equal(list, s.list) {
		s.changed = now
	}
	s.followMoves(list, now)
	s.list, s.read = list, now
	s.nodes.doubted.Store(false)
	return list, nil
}

// listAgain has the masters listed again at the next call that needs them.
func (s *Shards) listAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = time.Time{}
}

// present returns the shards that are not away; all of them, if none is left.
func (s *Shards) present(ctx context.Context) ([]shard, error) {
	list, err := s.listShards(ctx)
	if err != nil || s.nodes.cluster == nil {
		return list, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.away) == 0 {
		return list, nil
	}
	present := slices.DeleteFunc(slices.Clone(list), func(one shard) bool { return s.of(one.addr) != nil })
	if len(present) == 0 {
		return list, nil
	}
	return present, nil
}

// Away lists the masters of a Cluster that did not answer last, by address. Calls about their keys
// fail immediately. CheckBeacon detects when they are available again.
func (s *Shards) Away() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.away)), func(addr string) bool { return s.of(addr) == nil })
}

func (s *Shards) isAway(addr string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(addr) != nil
}

// markAway records that a master is unavailable.
func (s *Shards) markAway(addr string, o *Outage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == nil {
		s.away = map[string]absence{}
	}
	s.away[addr] = absence{o, time.Now()}
	if o.State == StateMoving { // which says nothing about its data
		return
	}
	s.complete, s.before = false, false
	for _, one := range s.list {
		if one.addr == addr {
			delete(s.moved, one.tag)
		}
	}
}

// blame records that the master of a key is unavailable, if that is why a command about the key has
// failed, and returns its Outage. Otherwise the error is an *Outage.
func (s *Shards) blame(ctx context.Context, key string, failed error) (*Outage, error) {
	o := s.shardOutage(ctx, failed)
	if o == nil {
		return nil, s.nodes.outage(ctx, failed)
	}
	m, err := s.nodes.master(ctx, key)
	if err == nil {
		s.markAway(m.Options().Addr, o)
	}
	return o, err
}

// awayFor returns the reason why the master of a key is unavailable, or nil.
func (s *Shards) awayFor(ctx context.Context, key string) (*Outage, error) {
	s.mu.Lock()
	some := len(s.away) > 0
	s.mu.Unlock()
	if !some {
		return nil, nil
	}
	m, err := s.nodes.master(ctx, key)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(m.Options().Addr), nil
}

// lookForAway pings the unavailable masters, and drops those that are no longer masters.
func (s *Shards) lookForAway(ctx context.Context) error {
	if len(s.Away()) == 0 {
		return nil
	}
	masters, err := s.nodes.masters(ctx)
	if err != nil {
		return err
	}
	still := map[string]absence{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, m := range masters {
		if !s.isAway(m.Options().Addr) {
			continue
		}
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, awayPing)
			defer cancel()
			if err := m.Ping(ctx).Err(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				still[m.Options().Addr] = absence{outage(err), time.Now()}
			}
		})
	}
	group.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.read = still, time.Time{}
	return nil
}

// shardOutage returns the Outage of one master of a Cluster that err is about, or nil if err is not
// an error of one master alone. A master that kept the caller until its deadline counts: the caller
// must not wait for it again.
func (s *Shards) shardOutage(ctx context.Context, err error) *Outage {
	if s.nodes.cluster == nil || errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, errNoTime) {
		return nil
	}
	o := s.nodes.outage(ctx, err)
	switch o.State {
	case StateNetwork, StateTimeout, StateLoading, StateReadOnly, StateMasterDown, StateClusterDown, StateMoving,
		StateOOM, StateBusy, StateMaxClients, StateProtected, StateMisconf, StateNoReplicas:
		return o
	}
	return nil
}

// allAway reports whether no master is left, of those that were there last.
func (s *Shards) allAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.list, func(one shard) bool { return s.of(one.addr) == nil })
}

// isOutage reports whether err is an *Outage.
func isOutage(err error) bool {
	_, ok := errors.AsType[*Outage](err)
	return ok
}

// A master's tag, and so the names of the beacons there, may change when slots move. Under its new
// tag it has no beacons of the workers that have stopped, and a Keyspace must not take that for a
// loss. One that had found nothing missing before the change, and has noticed no break since, knows
// that nothing is missing now. It confirms that in Redis, for those that start later.
//
// Others write their beacons under the earlier tag until they list the masters again, and what they
// settle until then has no beacon under the new one. So a tag is confirmed again, with later
// positions, until MovesSettle has passed.

// confirmed is the number of the key that holds what ConfirmMoved writes, in addition to the two of
// a beacon.
const confirmed = 2

// MovesSettle is how long after a change of the tags others may write the earlier ones: they list
// the masters every shardsLife, and may have a pipeline under way.
const MovesSettle = 2 * shardsLife

// nodesAgree is how much later than others a node may learn of a move. Nodes tell each other
// immediately.
const nodesAgree = 500 * time.Millisecond

// followMoves records which tags of list are new because slots have moved, unless something may be
// missing in any case. The caller holds the lock.
//
// A new tag also comes with a replica that takes over while slots move. Its master may have lost
// something, so only a master that was there before counts, or one that has joined all others.
func (s *Shards) followMoves(list []shard, now time.Time) {
	if len(s.list) == 0 {
		return
	}
	has := func(list []shard, addr string) bool {
		return slices.ContainsFunc(list, func(o shard) bool { return o.addr == addr })
	}
	joined := !slices.ContainsFunc(s.list, func(o shard) bool { return !has(list, o.addr) })
	moved := map[string]time.Time{}
	for _, n := range list {
		i := slices.IndexFunc(s.list, func(o shard) bool { return o.tag == n.tag })
		switch {
		case i >= 0: // it keeps the tag, or another master has taken the slot over
			if noted, ok := s.moved[n.tag]; ok && has(list, s.list[i].addr) {
				moved[n.tag] = noted
			}
		case (s.complete || s.before) && (joined || has(s.list, n.addr)):
			moved[n.tag] = now
		}
	}
	s.moved, s.before = moved, s.before && joined
}

// hasMoved reports whether a tag is new because slots have moved, and others may still write the
// earlier one.
func (s *Shards) hasMoved(tag string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.moved[tag]
	return ok
}

// compare records that a comparison begins. Until ConfirmMoved or Doubt decides it, slots that move
// do not count as a loss.
func (s *Shards) compare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete, s.before = false, s.complete || s.before
}

// comparisonFailed records that a comparison has no result. Redis may have restarted meanwhile.
func (s *Shards) comparisonFailed(o *Outage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o == nil || o.State != StateMoving {
		s.complete, s.before = false, false
	}
}

// Doubt records that writes are missing in Redis, or may be, until ConfirmMoved is called. Call it
// when a comparison has found a loss that counts, see CannotTell.
func (s *Shards) Doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete, s.before, s.moved = false, false, nil
}

// Unconfirmed reports whether slots have moved whose tags ConfirmMoved has yet to confirm, or to
// confirm for the last time.
func (s *Shards) Unconfirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.moved) > 0
}

// CannotTell reports whether what looks lost since a time could be slots that have moved. Outside of
// a Cluster it never could. In a Cluster, it could until this Keyspace has first found that nothing
// is missing, and for MovesSettle after it saw the masters change. It also could for nodesAgree
// after that time: the node that listed the masters could be behind the others.
func (s *Shards) CannotTell(since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes.cluster != nil && (!s.compares || time.Since(s.changed) < MovesSettle || time.Since(since) < nodesAgree)
}

// confirm records that a tag is confirmed.
func (s *Shards) confirm(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if noted, ok := s.moved[tag]; ok && time.Since(noted) >= MovesSettle {
		delete(s.moved, tag)
	}
}

// compared records that nothing is missing in Redis, unless a master is unavailable.
func (s *Shards) compared() {
	complete := len(s.Away()) == 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete, s.before, s.compares = complete, false, true
}

// ConfirmMoved handles masters whose tag is new because slots have moved. It writes on each of them
// how far it has the acknowledged writes of each epoch. Call it with the last positions of all
// epochs, after Survived has reported no loss. Usually it has nothing to do. The error is an
// *Outage.
func (b *Beacons) ConfirmMoved(ctx context.Context, last map[string]uint64) error {
	if b.nodes.cluster == nil {
		return nil
	}
	present, err := b.shards.present(ctx)
	if err != nil {
		return err
	}
	for _, s := range present {
		if !b.shards.hasMoved(s.tag) {
			continue
		}
		var commands []redis.Cmder
		for epoch, n := range last {
			commands = append(commands, redis.NewStatusCmd(ctx, "set", beaconKey(s.tag, epoch, confirmed),
				value{n: n}.String(), "px", b.unlinks.ttl.Milliseconds()))
		}
		for part := range slices.Chunk(commands, maxNamesPerPipeline) {
			if err := b.nodes.exec(ctx, b.nodes.client, part); err != nil {
				return err
			}
			if err := firstError(part); err != nil {
				return b.nodes.outage(ctx, err)
			}
		}
		b.shards.confirm(s.tag)
	}
	b.shards.compared()
	return nil
}

// OwnPrefixes begin the names that only workers write: beacons, private names of index sets, and
// the state of workers.
var OwnPrefixes = []string{beaconPrefix, setPrefix, alivePrefix, string(WorkersHash), string(SourcesHash)}

// isState reports whether a name is of no data: a beacon, or what workers publish of their state.
func isState(name string) bool {
	return slices.ContainsFunc(OwnPrefixes, func(prefix string) bool { return prefix != setPrefix && strings.HasPrefix(name, prefix) })
}
