package keyspace

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Beacons detect that Redis has lost writes that it had acknowledged.
type Beacons struct {
	nodes  *Nodes
	shards *Shards

	unlinks beaconWriter // of Unlink
	sweeps  beaconWriter // of Sweep, TakeSet and TakeSets
}

// CheckBeacon checks that Redis, and in a Cluster every master, answers and still has the writes
// that it acknowledged to Unlink. It renews the time to live of the beacon. The error is an *Outage
// or a *Loss. In a Cluster it is an *Outage only if no master answers; see Away for single ones.
// Without beacons it is Ping.
func (b *Beacons) CheckBeacon(ctx context.Context) (Position, error) {
	if b.unlinks.ttl == 0 {
		return Position{}, b.nodes.Ping(ctx)
	}
	if err := b.shards.lookForAway(ctx); err != nil {
		return Position{}, err
	}
	return b.writeBeacon(ctx, &b.unlinks, nil, nil)
}

// writeBeacon sends commands in one pipeline, like exec, between a read and a write of the beacon
// of every available master, and returns the new position. Its error is an *Outage, or a *Loss;
// then the writer is in a new epoch.
//
// The position counts even if the caller finds an error in a command later, and even if a master is
// unavailable. The commands there are not acknowledged, and its beacon stays behind: in the worst
// case, other processes unlink again. Unless born is nil, each master is asked for its time before
// the commands.
func (b *Beacons) writeBeacon(ctx context.Context, l *beaconWriter, commands []redis.Cmder, born *birth) (Position, error) {
	if l.ttl == 0 {
		return Position{}, b.nodes.exec(ctx, b.nodes.client, commands)
	}
	present, err := b.shards.present(ctx)
	if err != nil {
		return Position{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch == "" {
		l.begin()
	}
	l.tried++
	probes := make([]beaconProbe, len(present))
	all := make([]redis.Cmder, 0, len(commands)+(3*copies+1)*len(present))
	for i, s := range present {
		probes[i] = l.probe(ctx, s)
		all = append(all, probes[i].get...)
		if born != nil {
			all = append(all, born.ask(ctx, s))
		}
	}
	all = append(all, commands...)
	for _, g := range probes {
		all = append(all, g.sets...)
	}
	waits := l.wait.append(ctx, b.nodes.cluster != nil, &all)
	if born != nil {
		born.sent = time.Now()
	}
	if err := b.nodes.exec(ctx, b.nodes.client, all); err != nil {
		return Position{}, err
	}
	if born != nil {
		born.answered = time.Now()
	}
	position, answered, err := l.take(ctx, b, probes)
	if err == nil {
		err = b.waited(ctx, l.wait, waits, answered)
	}
	return position, err
}

// markLateAway records the masters that kept a pipeline until the deadline of the caller. The
// client library then gives the error of the caller to all commands that have none, even to
// answered ones.
func (b *Beacons) markLateAway(ctx context.Context, probes []beaconProbe) {
	if b.nodes.cluster == nil || ctx.Err() != context.DeadlineExceeded {
		return
	}
	var late []string
	for _, g := range probes {
		if err := g.set.Err(); err != nil && err != context.DeadlineExceeded {
			late = append(late, g.addr)
		}
	}
	if len(late) == len(probes) {
		return
	}
	for _, addr := range late {
		b.shards.markAway(addr, &Outage{Err: ctx.Err(), State: StateTimeout})
	}
}

// readProbe returns both values of a beacon.
func (b *Beacons) readProbe(ctx context.Context, get []redis.Cmder) (seen [2]value, err error) {
	for i, c := range get {
		text, err := c.(*redis.StringCmd).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return seen, b.nodes.outage(ctx, err)
		}
		if v := parseValue(text); v.n > seen[i%2].n {
			seen[i%2] = v
		}
	}
	return seen, nil
}
