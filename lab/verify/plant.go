package verify

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A Plant is a deliberate bug that shows whether the checker works. It sits at an edge, in the
// client or loader of a reader or between the servers: neither package cache nor the worker has
// code for it.
type Plant struct {
	Name, Breaks string
	phase        string // that reveals it
}

// The names of plants that other files use.
const (
	bareFill    = "bare-fill"
	leftLease   = "left-lease"
	lateStamps  = "late-stamps"
	oldSnapshot = "old-snapshot"
	falseBeacon = "false-beacon"
	deaf        = "deaf"
	forgedBeats = "forged-beats"
	oldBirth    = "old-birth"
)

// Plants are all plants.
var Plants = []Plant{
	{bareFill, "a fill needs a lease that is still there: fills are plain SETs", "calm"},
	{leftLease, "an UNLINK takes the lease with the value: leases have a name that the worker does not know", "calm"},
	{lateStamps, "stamps are read before the load: those in entries are from after it", "calm"},
	{oldSnapshot, "a loader reads outside an older snapshot: it is in a transaction that began up to three seconds ago", "calm"},
	{falseBeacon, "beacons reveal lost writes: the beacon is restored after Redis came back with an old snapshot", "old snapshot"},
	{deaf, "L1 keeps only values whose messages arrive: a proxy rewrites messages to name other keys, with their numbers", "calm"},
	{forgedBeats, "only workers send heartbeats: another process continues them when all workers have ended", "no worker"},
	{oldBirth, "an entry has the time of its lease: entries get a time one minute earlier", "calm"},
}

func plantNames() (names []string) {
	for _, p := range Plants {
		names = append(names, p.Name)
	}
	return names
}

// plant adds the bug to a reader's client.
func plant(name string, client *redis.Client, s *spec) {
	if name == "" {
		return
	}
	bare := redis.NewClient(&redis.Options{Addr: s.Redis})
	switch name {
	case bareFill:
		client.AddHook(hook{func(ctx context.Context, cmd redis.Cmder) bool { return fillBare(ctx, bare, cmd) }})
	case leftLease:
		client.AddHook(hook{func(_ context.Context, cmd redis.Cmder) bool { renameLease(cmd); return false }})
	case oldBirth:
		client.AddHook(hook{func(_ context.Context, cmd redis.Cmder) bool { ageBirth(cmd); return false }})
	case lateStamps:
		client.AddHook(hook{func(ctx context.Context, cmd redis.Cmder) bool { stampLate(ctx, bare, cmd); return false }})
	}
}

// A hook inspects each command before it is sent. If change reports an answer, the command is not
// sent.
type hook struct {
	change func(context.Context, redis.Cmder) (answered bool)
}

// DialHook changes nothing.
func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook changes single commands.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.change(ctx, cmd) {
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook changes the commands of pipelines.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		left := slices.DeleteFunc(slices.Clone(cmds), func(cmd redis.Cmder) bool { return h.change(ctx, cmd) })
		if len(left) == 0 {
			return nil
		}
		return next(ctx, left)
	}
}

// The scripts that identify a command.
var (
	leaseScript   = redis.NewScript(protocol.LeaseScript)
	fillScript    = redis.NewScript(protocol.FillScript)
	releaseScript = redis.NewScript(protocol.ReleaseScript)
	stampScript   = redis.NewScript(protocol.StampScript)
)

// runs reports whether a command runs one of the scripts. Its keys begin at the fourth argument.
func runs(cmd redis.Cmder, scripts ...*redis.Script) bool {
	if name := cmd.Name(); name != "evalsha" && name != "eval" {
		return false
	}
	text, _ := cmd.Args()[1].(string)
	return slices.ContainsFunc(scripts, func(s *redis.Script) bool {
		return text == s.Hash() || text == protocol.FillScript && s == fillScript || text == protocol.LeaseScript && s == leaseScript || text == protocol.ReleaseScript && s == releaseScript
	})
}

// fillBare stores the value regardless of its lease.
func fillBare(ctx context.Context, bare *redis.Client, cmd redis.Cmder) bool {
	if !runs(cmd, fillScript) {
		return false
	}
	// verb, script, 3, lease, tombstone, value, lease value, text, milliseconds
	args := cmd.Args()
	life, _ := args[8].(int64)
	err := bare.Set(ctx, args[5].(string), args[7], time.Duration(life)*time.Millisecond).Err()
	if c, ok := cmd.(*redis.Cmd); ok && err == nil {
		c.SetVal(int64(1))
	}
	cmd.SetErr(err)
	return true
}

// renameLease gives the lease another name.
func renameLease(cmd redis.Cmder) {
	if runs(cmd, leaseScript, fillScript, releaseScript) {
		args := cmd.Args()
		name, _ := args[3].(string)
		args[3] = strings.Replace(name, "lock:fill:", "lock:mine:", 1)
	}
}

// editEntry changes the entry that a fill is about to store.
func editEntry(cmd redis.Cmder, change func(entry map[string]json.RawMessage) bool) {
	if !runs(cmd, fillScript) {
		return
	}
	args := cmd.Args()
	text, _ := args[7].([]byte)
	head, value, raw := bytes.Cut(text, []byte{'\n'}) // format 2
	var entry map[string]json.RawMessage
	if json.Unmarshal(head, &entry) == nil && change(entry) {
		head, _ = json.Marshal(entry)
		if raw {
			head = append(append(head, '\n'), value...)
		}
		args[7] = head
	}
}

// stampLate writes the current tag versions into the entry.
func stampLate(ctx context.Context, bare *redis.Client, cmd redis.Cmder) {
	editEntry(cmd, func(entry map[string]json.RawMessage) bool {
		var stamps map[string]string
		if json.Unmarshal(entry["t"], &stamps) != nil {
			return false
		}
		for tag := range stamps {
			stamp := protocol.StampKey(tag)
			hold, _ := protocol.HoldKey(stamp)
			stamps[tag], _ = stampScript.Run(ctx, bare, []string{stamp, hold}, rand.Text(), time.Hour.Milliseconds()).Text()
		}
		entry["t"], _ = json.Marshal(stamps)
		return true
	})
}

// ageBirth moves the lease time of the entry back by one minute.
func ageBirth(cmd redis.Cmder) {
	editEntry(cmd, func(entry map[string]json.RawMessage) bool {
		var born int64
		if json.Unmarshal(entry["b"], &born) != nil {
			return false
		}
		entry["b"], _ = json.Marshal(born - time.Minute.Microseconds())
		return true
	})
}
