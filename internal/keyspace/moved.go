package keyspace

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// A master's tag, and so the names of the beacons there, may change when slots move. Under its new
// tag it has no beacons of the workers that have stopped, and a Keyspace must not take that for a
// loss. One that had found nothing missing before the change, and has noticed no break since, knows
// that nothing is missing now. It confirms that in Redis, for those that start later.

// confirmed is the number of the key that holds what ConfirmMoved writes, in addition to the two of
// a beacon.
const confirmed = 2

// followMoves records which tags of list are new because slots have moved, unless something may be
// missing in any case. The caller holds the lock.
//
// A new tag also comes with a replica that takes over while slots move. Its master may have lost
// something, so only a master that was there before counts, or one that has joined all others.
func (s *Shards) followMoves(list []shard) {
	if len(s.list) == 0 {
		return
	}
	has := func(list []shard, addr string) bool {
		return slices.ContainsFunc(list, func(o shard) bool { return o.addr == addr })
	}
	joined := !slices.ContainsFunc(s.list, func(o shard) bool { return !has(list, o.addr) })
	moved := map[string]bool{}
	for _, n := range list {
		i := slices.IndexFunc(s.list, func(o shard) bool { return o.tag == n.tag })
		switch {
		case i >= 0: // it keeps the tag, or another master has taken the slot over
			moved[n.tag] = s.moved[n.tag] && has(list, s.list[i].addr)
		default:
			moved[n.tag] = s.complete && (joined || has(s.list, n.addr))
		}
	}
	s.moved = moved
}

// hasMoved reports whether a tag is new because slots have moved, and it is not confirmed yet.
func (s *Shards) hasMoved(tag string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved[tag]
}

// doubt records that writes may be missing in Redis, until ConfirmMoved is called.
func (s *Shards) doubt(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete = false
	if all {
		s.moved = nil
	}
}

// confirm records that a tag is confirmed.
func (s *Shards) confirm(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.moved, tag)
}

// compared records that nothing is missing in Redis, unless a master is unavailable.
func (s *Shards) compared() {
	complete := len(s.Away()) == 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete = complete
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
			for _, c := range part {
				if c.Err() != nil {
					return b.nodes.outage(ctx, c.Err())
				}
			}
		}
		b.shards.confirm(s.tag)
	}
	b.shards.compared()
	return nil
}
