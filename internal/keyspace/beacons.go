package keyspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/protocol"
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
		l.newEpoch()
	}
	l.tried++
	probes := make([]beaconProbe, len(present))
	all := make([]redis.Cmder, 0, len(commands)+(3*copies+1)*len(present))
	for i, s := range present {
		probes[i] = l.probe(ctx, s)
		all = append(all, probes[i].get...)
		if born != nil {
			all = append(all, born.askTime(ctx, s))
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
	position, answered, err := l.readAnswers(ctx, b, probes)
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

// A beacon is a write marker that reveals whether Redis still has the writes that it acknowledged.
//
// Every pipeline that unlinks has a position. It begins with reading the beacon and ends with
// writing its number into it. Replication and persistence keep the order of writes, and a pipeline
// goes over one connection to one server, so a server that has the number has everything before it.
// After a failover to a replica that lagged, or a restart from an old snapshot, the number is
// missing. The older value shows the last position that the server has.
//
// A beacon has two keys, which pipelines write alternately, and each value names its predecessor:
// "7 6" in one and "6 5" in the other. So a number that was written before the beacon was checked
// does not hide the gap before it ("7 6" and "4 3"), and neither does a crash between the two. It
// needs only GET and SET, which a user of least privilege has.
//
// Each of the two keys has copies, written with it: allkeys-random may evict one. A copy with the
// number proves that nothing before it is lost, since all copies follow the unlinks. Without any
// copy, the writes count as lost.
//
// Limits: in a Cluster, a name that is redirected (MOVED, ASK) is unlinked after the beacon of its
// node was written. Its loss goes undetected only if that node also fails over before its beacon is
// written again.

// beaconPrefix begins the names of beacons: the prefix, in Cluster a hash tag for each master, the
// epoch, and the number of the key.
const beaconPrefix = protocol.BeaconPrefix

// A Position is a place in the order of the acknowledged writes of one epoch. A Keyspace without
// beacons has the zero Position.
type Position struct {
	Epoch string // random; another one after each loss
	N     uint64 // from 1; not every number is used
}

// A Loss means that Redis has lost writes that it had acknowledged: it failed over to a replica
// that lagged, or came back with older data or none. Call Survived for the position of the last
// write that it has, unlink everything after that again, and repeat the call that returned the
// Loss.
type Loss struct {
	Position Position // the last one that Redis had acknowledged
	Gone     bool     // the beacon is missing, and not older
}

func (l *Loss) Error() string {
	text := fmt.Sprintf("redis has lost what it acknowledged: position %d of epoch %s", l.Position.N, l.Position.Epoch)
	if l.Gone {
		text += " (no copy of its beacon is left; if maxmemory-policy is allkeys-random, Redis evicts them; set allkeys-lru or allkeys-lfu)"
	}
	return text
}

// A value is the content of one key of a beacon. The zero value is a missing key.
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

// copies is how many keys have each of the two values of a beacon.
const copies = 3

// copyNumbers are the numbers of these keys, those of each value alternately.
var copyNumbers = [2 * copies]int{0, 1, 3, 4, 5, 6}

// beaconKey names one of the keys of a beacon.
func beaconKey(tag, epoch string, slot int) string {
	if tag != "" {
		tag = "{" + tag + "}:"
	}
	return beaconPrefix + tag + epoch + ":" + strconv.Itoa(slot)
}

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

// newEpoch starts an epoch.
func (l *beaconWriter) newEpoch() {
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

// readAnswers reads the answers, and returns the probes that had one. A master must still have the
// number that it acknowledged last: no other writer has overwritten it. Masters without an answer
// are unavailable, unless none answered.
func (l *beaconWriter) readAnswers(ctx context.Context, b *Beacons, probes []beaconProbe) (at Position, answered []beaconProbe, err error) {
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
		b.shards.Doubt()
		loss := &Loss{Position{l.epoch, l.acked}, gone}
		l.newEpoch()
		return Position{}, nil, loss
	}
	for _, g := range answered {
		l.states[g.tag] = beaconState{l.tried, 1 - l.states[g.tag].slot}
	}
	l.acked = l.tried
	return Position{l.epoch, l.acked}, answered, nil
}

// Everything is the result of Survived for an epoch in a Redis without data: it cannot have stale
// values of the epoch.
const Everything = math.MaxUint64

// unbroken is like Everything, in a Redis with data: its new tag is younger than the data.
const unbroken = Everything - 1

// Survived returns for each epoch, of this or of other processes, the position of the last
// acknowledged write that Redis still has. In a Cluster the available master with the lowest
// position counts. The position may be one too low after a Loss, whose own pipeline overwrote one
// of the two keys. 0 means that nothing is known to be left, since the beacon is gone. The error is
// an *Outage.
func (b *Beacons) Survived(ctx context.Context, epochs []string) (map[string]uint64, error) {
	positions := make(map[string]uint64, len(epochs))
	b.shards.listAgain() // the epochs may have written tags that are newer than the list
	present, err := b.shards.present(ctx)
	if err != nil || len(epochs) == 0 {
		return positions, err
	}
	for _, epoch := range epochs {
		positions[epoch] = Everything
	}
	b.shards.compare()
	gone := 0
	for _, s := range present {
		if b.shards.hasMoved(s.tag) && !b.shards.isAway(s.addr) {
			for _, epoch := range epochs {
				positions[epoch] = min(positions[epoch], unbroken)
			}
			continue
		}
		err := b.survivedOn(ctx, s.tag, epochs, positions)
		if err == nil {
			continue
		}
		o := b.shards.shardOutage(ctx, err)
		if gone++; o == nil || gone == len(present) {
			b.shards.comparisonFailed(o)
			return nil, err
		}
		b.shards.markAway(s.addr, o)
	}
	return positions, nil
}

// survivedOn lowers positions to those of the master with the tag.
func (b *Beacons) survivedOn(ctx context.Context, tag string, epochs []string, positions map[string]uint64) error {
	gets, others := make([][]redis.Cmder, len(epochs)), make([]*redis.StringCmd, len(epochs))
	commands := make([]redis.Cmder, 0, (2*copies+1)*len(epochs))
	for i, epoch := range epochs {
		gets[i] = readBeacon(ctx, tag, epoch)
		commands = append(commands, gets[i]...)
		if others[i] = redis.NewStringCmd(ctx, "get", beaconKey(tag, epoch, confirmed)); tag != "" {
			commands = append(commands, others[i])
		}
	}
	if err := b.nodes.exec(ctx, b.nodes.client, commands); err != nil {
		return err
	}
	var gone []string
	for i, epoch := range epochs {
		seen, err := b.readProbe(ctx, gets[i])
		if err != nil {
			return err
		}
		if err := others[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return b.nodes.outage(ctx, err)
		}
		n := max(survived(seen[0], seen[1]), parseValue(others[i].Val()).n)
		if n == 0 {
			gone = append(gone, epoch)
			continue
		}
		positions[epoch] = min(positions[epoch], n)
	}
	if len(gone) == 0 {
		return nil
	}
	empty, err := b.empty(ctx, tag)
	for _, epoch := range gone {
		if !empty {
			positions[epoch] = 0
		}
	}
	return err
}

// empty reports whether a master has no key but those of the workers' state. A user who may not
// SCAN cannot know, and takes it for no.
func (b *Beacons) empty(ctx context.Context, tag string) (bool, error) {
	master, err := b.nodes.master(ctx, tag)
	if err != nil {
		return false, err
	}
	conn := master.Conn()
	defer conn.Close()
	for cursor, first := uint64(0), true; cursor != 0 || first; first = false {
		var names []string
		names, cursor, err = conn.Scan(ctx, cursor, "", scanCount).Result()
		switch {
		case redis.IsPermissionError(err):
			return false, nil
		case err != nil:
			return false, b.nodes.outage(ctx, err)
		}
		for _, name := range names {
			if !isState(name) {
				return false, nil
			}
		}
	}
	return true, nil
}

// survived returns the last number before a gap, or 0 if there is none, from both keys of a beacon.
func survived(a, b value) uint64 {
	if b.n > a.n {
		a, b = b, a
	}
	if b.n < a.before {
		return b.n
	}
	return a.n
}

const maxWaitReplicas = 10

// A waitOption is the number of replicas that must acknowledge a pipeline.
type waitOption struct {
	replicas int // 0: no wait
	limit    time.Duration
}

func (w waitOption) command(ctx context.Context) *redis.IntCmd {
	return redis.NewIntCmd(ctx, "wait", w.replicas, w.limit.Milliseconds())
}

// append adds a WAIT to a pipeline over one connection: WAIT covers the writes of its connection.
// In a Cluster, where a pipeline uses many connections and a command without a key any of them, it
// adds nothing: see waited.
func (w waitOption) append(ctx context.Context, cluster bool, commands *[]redis.Cmder) []*redis.IntCmd {
	if w.replicas == 0 || cluster {
		return nil
	}
	wait := w.command(ctx)
	*commands = append(*commands, wait)
	return []*redis.IntCmd{wait}
}

// waited checks the answers. In a Cluster it first writes the beacon of each master again, over a
// connection that then waits: a replica with that write has all earlier ones.
func (b *Beacons) waited(ctx context.Context, w waitOption, waits []*redis.IntCmd, probes []beaconProbe) error {
	if w.replicas > 0 && b.nodes.cluster != nil {
		for _, g := range probes {
			master, err := b.nodes.master(ctx, g.tag)
			if err != nil {
				return err
			}
			wait := w.command(ctx)
			if err := b.nodes.exec(ctx, master, []redis.Cmder{redis.NewStatusCmd(ctx, g.set.Args()...), wait}); err != nil {
				return err
			}
			waits = append(waits, wait)
		}
	}
	for _, wait := range waits {
		n, err := wait.Result()
		switch {
		case err != nil:
			return b.nodes.outage(ctx, err)
		case n < int64(w.replicas):
			return &Outage{State: StateNoReplicas, Err: fmt.Errorf("%d of %d replicas have acknowledged within %v", n, w.replicas, w.limit)}
		}
	}
	return nil
}

// timeRetry is the pause before an account without +time asks again: each refusal is an entry in
// the ACL log of Redis.
const timeRetry = time.Minute

// A clock knows whether the account may use TIME. The zero clock has yet to find out.
type clock struct {
	deniedUntil atomic.Int64 // nanoseconds since 1970
}

func (c *clock) mayAsk() bool { return time.Now().UnixNano() >= c.deniedUntil.Load() }

func (c *clock) deny() { c.deniedUntil.Store(time.Now().Add(timeRetry).UnixNano()) }

// A birth asks every node for its time, in a pipeline that goes to the node anyway.
type birth struct {
	asked          []*timeCommand
	addrs          []string // of the nodes
	sent, answered time.Time
	unknown        bool // the account may not ask
}

// A Reading is the time of a master by its own clock, in microseconds since 1970. The master read
// it between two times of this process's clock.
type Reading struct {
	Addr           string // of the master in a Cluster; "" otherwise
	Micros         uint64
	Sent, Answered time.Time
}

// askTime returns a TIME for a node. Send it before the first UNLINK, but not as the
// first command of a pipeline: if that one fails, the client library may send the whole pipeline
// again.
//
// The time from the answered attempt counts. Answers come in the order of the commands, so commands
// that are sent again to a node without an answer for its time are unlinked after the new answer.
func (b *birth) askTime(ctx context.Context, s shard) redis.Cmder {
	c := newTimeCommand(ctx, s.tag)
	b.asked, b.addrs = append(b.asked, c), append(b.addrs, s.addr)
	return c
}

// leastTime returns the least time of all nodes, in microseconds since 1970, and the time of each,
// or 0 and none if they are unknown. A node that did not answer has not acknowledged any unlink.
// leastTime records a refusal.
func (b *birth) leastTime(known *clock) (least uint64, all []Reading) {
	for i, c := range b.asked {
		now, err := c.Result()
		switch {
		case err == nil && !now.IsZero():
			n := uint64(now.UnixMicro())
			if least == 0 || n < least {
				least = n
			}
			all = append(all, Reading{b.addrs[i], n, b.sent, b.answered})
		case firstWord(err) == "NOPERM":
			known.deny()
			b.unknown = true
		case err == nil, firstWord(err) != "":
			b.unknown = true
		}
	}
	if b.unknown {
		return 0, nil
	}
	return least, all
}

// A timeCommand is a TIME that finds its node, in a pipeline for a Cluster, as a command with a key
// would, and sends nothing of that key.
type timeCommand struct{ *redis.TimeCmd }

func newTimeCommand(ctx context.Context, tag string) *timeCommand {
	c := redis.NewTimeCmd(ctx, "time", tag)
	if tag != "" {
		c.SetFirstKeyPos(1)
	}
	return &timeCommand{c}
}

// Args returns what is sent.
func (c *timeCommand) Args() []any { return c.TimeCmd.Args()[:1] }
