package keyspace

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A beaconWriter writes one beacon, one pipeline at a time. Unlink and Sweep have one each, so
// neither waits for the other.
type beaconWriter struct {
	ttl  time.Duration // of the keys; 0: no beacon at all
	wait waitOption

	mu     sync.Mutex // held while a pipeline is under way
	epoch  string     // empty before the first pipeline
	tried  uint64     // the last number, acknowledged or not
	acked  uint64     // of the last one that every master that was not away acknowledged
	states map[string]beaconState
}

// A beaconState is the state of one master as a writer knows it.
type beaconState struct {
	acked uint64 // the last number that the master acknowledged
	slot  int    // the key that holds it; the next pipeline writes the other one
}

// A beaconProbe is the beacon's part of one pipeline for one master: the GETs before everything
// else, and the SETs after it.
type beaconProbe struct {
	shard
	get, sets []redis.Cmder
	set       *redis.StatusCmd // the last of sets
}

// readBeacon returns the commands for readProbe.
func readBeacon(ctx context.Context, tag, epoch string) (get []redis.Cmder) {
	for _, n := range copyNumbers {
		get = append(get, redis.NewStringCmd(ctx, "get", beaconKey(tag, epoch, n)))
	}
	return get
}

// begin starts an epoch.
func (l *beaconWriter) begin() {
	l.epoch, l.tried, l.acked, l.states = rand.Text(), 0, 0, map[string]beaconState{}
}

func (l *beaconWriter) probe(ctx context.Context, s shard) beaconProbe {
	m := l.states[s.tag]
	g := beaconProbe{shard: s, get: readBeacon(ctx, s.tag, l.epoch)}
	for i := 1 - m.slot; i < len(copyNumbers); i += 2 {
		g.set = redis.NewStatusCmd(ctx, "set", beaconKey(s.tag, l.epoch, copyNumbers[i]),
			value{l.tried, m.acked}.String(), "px", l.ttl.Milliseconds())
		g.sets = append(g.sets, g.set)
	}
	return g
}

// take reads the answers, and returns the probes that had one. A master must still have the number
// that it acknowledged last: no other writer has overwritten it. Masters without an answer are
// unavailable, unless none answered.
func (l *beaconWriter) take(ctx context.Context, b *Beacons, probes []beaconProbe) (at Position, answered []beaconProbe, err error) {
	lost, gone := false, false
	away := map[string]*Outage{}
	b.markLateAway(ctx, probes)
	for _, g := range probes {
		seen, err := b.readProbe(ctx, g.get)
		if err == nil && g.set.Err() != nil {
			err = b.nodes.outage(ctx, g.set.Err())
		}
		if err != nil {
			o := b.shards.shardOutage(ctx, err)
			if o == nil || len(away) == len(probes)-1 {
				return Position{}, nil, err
			}
			away[g.addr] = o
			continue
		}
		answered = append(answered, g)
		m := l.states[g.tag]
		lost = lost || seen[m.slot].n != m.acked && m.acked > 0
		gone = gone || seen[m.slot].n == 0 && m.acked > 0
	}
	for addr, o := range away {
		b.shards.markAway(addr, o)
	}
	if lost {
		b.shards.doubt(true)
		loss := &Loss{Position{l.epoch, l.acked}, gone}
		l.begin()
		return Position{}, nil, loss
	}
	for _, g := range answered {
		l.states[g.tag] = beaconState{l.tried, 1 - l.states[g.tag].slot}
	}
	l.acked = l.tried
	return Position{l.epoch, l.acked}, answered, nil
}
