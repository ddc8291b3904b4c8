package keyspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A beacon tells later whether Redis still has what it acknowledged.
//
// Every pipeline that unlinks has a position: it begins with reading the beacon and ends with writing its own number
// into it. Replication and persistence keep the order of writes, and a pipeline goes over one connection to one server,
// so a server that has the number has everything before it. After a failover to a replica that lagged, or a restart
// from an old snapshot, the number is missing, and what is there instead says how far the server's memory goes.
//
// A beacon has two keys, which pipelines write in turn, and each value names its predecessor: "7 6" in one and "6 5" in
// the other. So a number that was written before anybody looked does not hide the gap before it ("7 6" beside "4 3"),
// and neither does a crash between the two. GET and SET are all that it takes, which a user of least privilege has.
//
// Not covered: in Cluster a name that is redirected (MOVED, ASK) is unlinked after its node's beacon was written. Its
// loss goes unnoticed only if that node also fails over before its beacon is written again.

// beaconPrefix begins the names of beacons: the prefix, in Cluster a hash tag for each master, the epoch, and the
// number of the key.
const beaconPrefix = "unstale:beacon:"

// A Position is a place in the order of what one epoch has had acknowledged. The zero Position is that of a Keyspace
// without beacons.
type Position struct {
	Epoch string // random; another one after each loss
	N     uint64 // from 1; not every number is used
}

// A Loss says that Redis does not have any more what it had acknowledged: it failed over to a replica that lagged, or
// came back with older data, or with none. Ask Survived how far its memory goes, unlink again what came after that, and
// repeat the call that returned the Loss.
type Loss struct {
	Position Position // the last one that Redis had acknowledged
}

func (l *Loss) Error() string {
	return fmt.Sprintf("redis has lost what it acknowledged: position %d of epoch %s", l.Position.N, l.Position.Epoch)
}

// A beaconWriter writes one beacon, one pipeline after the other. Unlink and Sweep have one each, so that neither waits
// for the other.
type beaconWriter struct {
	ttl  time.Duration // of the keys; 0: no beacon at all
	wait waitOption

	mu     sync.Mutex // held while a pipeline is under way
	epoch  string     // empty before the first pipeline
	tried  uint64     // the last number, acknowledged or not
	acked  uint64     // of the last one that every master that was not away acknowledged
	states map[string]beaconState
}

// A beaconState is what a writer knows of one master.
type beaconState struct {
	acked uint64 // the last number that the master acknowledged
	slot  int    // the key that holds it; the next pipeline writes the other one
}

// A value is what one key of a beacon holds. The zero value is a missing key.
type value struct{ n, before uint64 }

func (v value) String() string { return fmt.Sprintf("%d %d", v.n, v.before) }

// parseValue reads a value; anything else counts as missing.
func parseValue(text string) value {
	n, before, _ := strings.Cut(text, " ")
	var v value
	var err, also error
	v.n, err = strconv.ParseUint(n, 10, 64)
	v.before, also = strconv.ParseUint(before, 10, 64)
	if err != nil || also != nil || v.before >= v.n {
		return value{}
	}
	return v
}

// beaconKey names one of the two keys of a beacon.
func beaconKey(tag, epoch string, slot int) string {
	if tag != "" {
		tag = "{" + tag + "}:"
	}
	return beaconPrefix + tag + epoch + ":" + strconv.Itoa(slot)
}

// A beaconProbe is the beacon's part of one pipeline for one master: two GETs before everything else, and a SET after
// it.
type beaconProbe struct {
	shard
	get [2]*redis.StringCmd
	set *redis.StatusCmd
}

// writeBeacon sends commands in one pipeline, as exec does, between a read and a write of the beacon of every master
// that is not away, and returns the new position. Its error is an *Outage, or a *Loss, after which the writer is in a
// new epoch. Where a command carries an error that the caller has yet to find, the position counts nonetheless. So it
// does where a master is away: what the caller has there is not acknowledged, and its beacon stays behind, which at
// worst makes others unlink once more. Before the commands each master is asked for its time, unless born is nil.
func (k *Keyspace) writeBeacon(ctx context.Context, l *beaconWriter, commands []redis.Cmder, born *birth) (Position, error) {
	if l.ttl == 0 {
		return Position{}, k.exec(ctx, k.client, commands)
	}
	present, err := k.present(ctx)
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
	all := make([]redis.Cmder, 0, len(commands)+4*len(present))
	for i, s := range present {
		probes[i] = l.probe(ctx, s)
		all = append(all, probes[i].get[0], probes[i].get[1])
		if born != nil {
			all = append(all, born.ask(ctx, s.tag))
		}
	}
	all = append(all, commands...)
	for _, g := range probes {
		all = append(all, g.set)
	}
	waits := l.wait.append(ctx, k, &all)
	if err := k.exec(ctx, k.client, all); err != nil {
		return Position{}, err
	}
	b, answered, err := l.take(ctx, k, probes)
	if err == nil {
		err = k.waited(ctx, l.wait, waits, answered)
	}
	return b, err
}

// begin starts an epoch.
func (l *beaconWriter) begin() {
	l.epoch, l.tried, l.acked, l.states = rand.Text(), 0, 0, map[string]beaconState{}
}

func (l *beaconWriter) probe(ctx context.Context, s shard) beaconProbe {
	m := l.states[s.tag]
	g := beaconProbe{shard: s}
	for slot := range g.get {
		g.get[slot] = redis.NewStringCmd(ctx, "get", beaconKey(s.tag, l.epoch, slot))
	}
	g.set = redis.NewStatusCmd(ctx, "set", beaconKey(s.tag, l.epoch, 1-m.slot),
		value{l.tried, m.acked}.String(), "px", l.ttl.Milliseconds())
	return g
}

// take reads the answers, and returns the probes that had one. A master must still have the number that it acknowledged
// last: nothing has overwritten it since. Masters that did not answer are away, unless none did.
func (l *beaconWriter) take(ctx context.Context, k *Keyspace, probes []beaconProbe) (b Position, answered []beaconProbe, err error) {
	lost := false
	gone := map[string]*Outage{}
	k.markLateAway(ctx, probes)
	for _, g := range probes {
		seen, err := k.readProbe(ctx, g.get)
		if err == nil && g.set.Err() != nil {
			err = k.outage(ctx, g.set.Err())
		}
		if err != nil {
			o := k.shardOutage(ctx, err)
			if o == nil || len(gone) == len(probes)-1 {
				return Position{}, nil, err
			}
			gone[g.addr] = o
			continue
		}
		answered = append(answered, g)
		m := l.states[g.tag]
		lost = lost || seen[m.slot].n != m.acked && m.acked > 0
	}
	for addr, o := range gone {
		k.markAway(addr, o)
	}
	if lost {
		k.shards.doubt(true)
		loss := &Loss{Position{l.epoch, l.acked}}
		l.begin()
		return Position{}, nil, loss
	}
	for _, g := range answered {
		l.states[g.tag] = beaconState{l.tried, 1 - l.states[g.tag].slot}
	}
	l.acked = l.tried
	return Position{l.epoch, l.acked}, answered, nil
}

// markLateAway notes the masters that kept a pipeline until the caller's deadline. The client library then gives the
// caller's error to all commands that have none, also to those that were answered.
func (k *Keyspace) markLateAway(ctx context.Context, probes []beaconProbe) {
	if k.cluster == nil || ctx.Err() != context.DeadlineExceeded {
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
		k.markAway(addr, &Outage{Err: ctx.Err(), State: StateTimeout})
	}
}

// readProbe reads both keys of a beacon.
func (k *Keyspace) readProbe(ctx context.Context, get [2]*redis.StringCmd) (seen [2]value, err error) {
	for i, c := range get {
		text, err := c.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return seen, k.outage(ctx, err)
		}
		seen[i] = parseValue(text)
	}
	return seen, nil
}

// CheckBeacon checks that Redis, and in Cluster every master, answers and still has what it acknowledged to Unlink. It
// renews the beacon's time to live. The error is an *Outage or a *Loss; in Cluster a master that is away is one where
// no other answers either, see Away. Without beacons it is Ping.
func (k *Keyspace) CheckBeacon(ctx context.Context) (Position, error) {
	if k.unlinks.ttl == 0 {
		return Position{}, k.Ping(ctx)
	}
	if err := k.lookForAway(ctx); err != nil {
		return Position{}, err
	}
	return k.writeBeacon(ctx, &k.unlinks, nil, nil)
}
