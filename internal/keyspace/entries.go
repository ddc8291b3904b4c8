package keyspace

import (
	"context"
	_ "embed" // for the script
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// HeadBytes is how much of an entry Look reads. It includes the lease time of an entry of package
// cache, and a whole tag version.
const HeadBytes = 96

// EntryRules are the ACL commands that Look and Repair need in addition to those of a worker.
const EntryRules = "+getrange +evalsha +eval"

//go:embed repair.lua
var repairText string

var repairScript = redis.NewScript(repairText)

// Entries looks at the beginnings of entries. It is safe for concurrent use.
type Entries struct {
	nodes  *Nodes
	shards *Shards
}

// An Asked is a key to look at.
type Asked struct {
	Key   string
	Epoch string // of the beacon to read with it
	Hold  bool   // whether it has a tombstone is asked too
}

// A Master is the state of a master while Look has read its keys.
type Master struct {
	Reading
	// Layout changes whenever the master of a Cluster gets or loses slots; "" otherwise.
	Layout string
	// Moving: slots are on their way from or to it.
	Moving bool

	epochs map[string]uint64
}

// Survived returns the last position of the epoch before a gap: the master has all acknowledged
// writes up to it. 0: unknown. It was read before the keys.
func (m *Master) Survived(epoch string) uint64 { return m.epochs[epoch] }

// A Seen is the state of a key.
type Seen struct {
	Master *Master // nil with Err
	Head   string  // the first HeadBytes bytes; "" if the key does not exist
	Held   bool    // it has a tombstone
	Err    error
}

var errNoAnswer = errors.New("the master of the key did not answer")

// Look reads keys, and the state of all available masters. It sends each of them one pipeline, and
// no key is redirected: if a slot has moved, its keys have an error. The error is an *Outage of all
// masters.
func (e *Entries) Look(ctx context.Context, asked []Asked) (seen []Seen, masters []*Master, err error) {
	present, err := e.shards.present(ctx)
	if err != nil {
		return nil, nil, err
	}
	seen = make([]Seen, len(asked))
	of := map[string][]int{} // by address
	for i, a := range asked {
		seen[i].Err = errNoAnswer
		addr := ""
		if e.nodes.cluster != nil {
			m, err := e.nodes.master(ctx, a.Key)
			if err != nil {
				return nil, nil, err
			}
			addr = m.Options().Addr
		}
		of[addr] = append(of[addr], i)
	}
	for _, s := range present {
		m, failed := e.lookAt(ctx, s, asked, of[s.addr], seen)
		if failed != nil {
			err = failed
			continue
		}
		masters = append(masters, m)
	}
	if len(masters) > 0 {
		err = nil
	}
	return seen, masters, err
}

// lookAt sends the pipeline of one master.
func (e *Entries) lookAt(ctx context.Context, s shard, asked []Asked, of []int, seen []Seen) (*Master, error) {
	node, err := e.nodes.master(ctx, s.tag)
	if err != nil {
		return nil, err
	}
	var commands []redis.Cmder
	ask := func(args ...any) *redis.StringCmd {
		c := redis.NewStringCmd(ctx, args...)
		commands = append(commands, c)
		return c
	}
	beacons := map[string][2]*redis.StringCmd{}
	for _, i := range of {
		if epoch := asked[i].Epoch; beacons[epoch][0] == nil {
			beacons[epoch] = [2]*redis.StringCmd{ask("get", beaconKey(s.tag, epoch, 0)), ask("get", beaconKey(s.tag, epoch, 1))}
		}
	}
	clock, nodes := redis.NewTimeCmd(ctx, "time"), &redis.StringCmd{}
	commands = append(commands, clock)
	if e.nodes.cluster != nil {
		nodes = ask("cluster", "nodes")
	}
	// All that may be missing is read with GETRANGE: whoever judges the hit ratio of Redis subtracts
	// its calls from the misses.
	heads, held := make([]*redis.StringCmd, len(of)), make([]*redis.StringCmd, len(of))
	for n, i := range of {
		heads[n] = ask("getrange", asked[i].Key, 0, HeadBytes-1)
		if name, ok := protocol.HoldKey(asked[i].Key); ok && asked[i].Hold {
			held[n] = ask("getrange", name, 0, 0)
		}
	}
	m := &Master{Reading: Reading{Addr: s.addr, Sent: time.Now()}, epochs: map[string]uint64{}}
	if err := e.nodes.exec(ctx, node, commands); err != nil {
		return nil, err
	}
	m.Answered = time.Now()
	if err := errors.Join(clock.Err(), nodes.Err()); err != nil {
		return nil, e.nodes.outage(ctx, err)
	}
	m.Micros = uint64(clock.Val().UnixMicro())
	if m.Layout, m.Moving = ownSlots(nodes.Val()); e.nodes.cluster != nil && m.Layout == "" {
		return nil, e.nodes.outage(ctx, fmt.Errorf("ask %s for its slots: %w", s.addr, errNoMaster))
	}
	for epoch, keys := range beacons { // an error is a missing value
		m.epochs[epoch] = survived(parseValue(keys[0].Val()), parseValue(keys[1].Val()))
	}
	for n, i := range of {
		seen[i] = Seen{Master: m, Head: heads[n].Val(), Err: heads[n].Err()}
		if held[n] != nil {
			seen[i].Held = held[n].Err() == nil && held[n].Val() != ""
		}
		if seen[i].Err != nil {
			seen[i].Master = nil
		}
	}
	return m, nil
}

// ownSlots returns the ID, the configuration epoch and the slots of a master, from its own CLUSTER
// NODES reply. A master that gets a slot raises its epoch.
func ownSlots(nodes string) (layout string, moving bool) {
	for line := range strings.Lines(nodes) {
		if !strings.Contains(line, " myself,") {
			continue
		}
		if fields := strings.Fields(line); len(fields) > 8 {
			slots := strings.Join(fields[8:], " ")
			return fields[0] + " " + fields[6] + " " + slots, strings.Contains(slots, "[")
		}
	}
	return "", false
}

// Repair unlinks an entry with its lease if it still begins with head, and with held only if it
// still has a tombstone, and reports whether it did. The error is the reply of Redis.
func (e *Entries) Repair(ctx context.Context, key, head string, held bool) (done bool, err error) {
	names, only := []string{key}, ""
	if lease, ok := protocol.LeaseKey(key); ok {
		names = append(names, lease)
	}
	if name, ok := protocol.HoldKey(key); ok && held {
		names, only = append(names, name), "held"
	}
	n, err := repairScript.Run(ctx, e.nodes.client, names, head, only).Int()
	if err != nil {
		return false, explainDenial(err, []any{"evalsha", key})
	}
	return n > 0, nil
}

// IsDenied reports whether err is the refusal of a command or a key by the ACL of Redis, or the
// *Outage of one.
func IsDenied(err error) bool { return outage(err).State == StateNoPerm }
