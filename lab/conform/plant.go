package conform

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A Plant is a bug of package cache that the judge must find. It sits at the edge, in the Redis
// client: package cache has no code for it.
type Plant struct {
	Name, Breaks string
	Rule         string // that the judge names
	memory       bool   // the client needs an in-process cache to have it
}

// The names of plants.
const (
	bareFill       = "bare-fill"
	leftLease      = "left-lease"
	OwnLease       = "own-lease"
	lateStamps     = "late-stamps"
	oldBirth       = "old-birth"
	ignoredGap     = "ignored-gap"
	characterGlobs = "character-globs"
	textHash       = "text-hash"
)

// Plants are all plants.
var Plants = []Plant{
	{bareFill, "it stores with a plain SET", "fill", false},
	{leftLease, "it gives no lease back", "release", false},
	{OwnLease, "its leases have a name that no worker unlinks", "names", false},
	{lateStamps, "it reads tag versions after the load", "stamps", false},
	{oldBirth, "the time of the lease in an entry is a minute earlier", "entry", false},
	{ignoredGap, "it does not compare the numbers of messages", "gap", true},
	{characterGlobs, "? in a pattern is a character of two bytes, not a byte", "glob", true},
	{textHash, "it hashes an entry after decoding it as text", "hash", false},
}

// String names a plant for the help.
func (p Plant) String() string { return fmt.Sprintf("%s (rule %s)", p.Breaks, p.Rule) }

// Spoil gives a client the bug of that name, unless it is one of messages. bare is another client of
// the same server, which the bug uses.
func Spoil(name string, client, bare redis.UniversalClient) { client.AddHook(hook{name, bare}) }

// A hook has the bug of a plant.
type hook struct {
	plant string
	bare  redis.UniversalClient
}

// DialHook changes nothing.
func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook changes single commands.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = h.ProcessPipelineHook(func(ctx context.Context, _ []redis.Cmder) error { return next(ctx, cmd) })(ctx, []redis.Cmder{cmd})
		return cmd.Err()
	}
}

// ProcessPipelineHook changes the commands of pipelines. Those that are answered are not sent.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		left := slices.DeleteFunc(slices.Clone(cmds), func(cmd redis.Cmder) bool { return h.change(ctx, cmd) })
		if len(left) > 0 {
			err = next(ctx, left)
		}
		for _, cmd := range left {
			if c, ok := cmd.(*redis.StringCmd); ok && h.plant == textHash {
				c.SetVal(string([]rune(c.Val())))
			}
		}
		return err
	}
}

// change makes a command that runs a script wrong, or answers it.
func (h hook) change(ctx context.Context, cmd redis.Cmder) (answered bool) {
	args := cmd.Args() // verb, script, number of keys; of a fill: lease, tombstone, value, lease value, entry, milliseconds
	if name := cmd.Name(); name != "evalsha" && name != "eval" {
		return false
	}
	text, _ := args[1].(string)
	script, lease := scriptNames[text], args[3].(string)
	var err error
	switch {
	case h.plant == OwnLease && script != "stamp": // in a Cluster, it is in another slot
		args[3] = strings.Replace(lease, "{", "{mine:", 1)
		return false
	case h.plant == lateStamps && script == "fill":
		h.stampLate(ctx, args)
		return false
	case h.plant == oldBirth && script == "fill":
		editEntry(args, "b", func(born int64) int64 { return born - time.Minute.Microseconds() })
		return false
	case h.plant == leftLease && script == "release":
	case h.plant == bareFill && script == "fill":
		if err = h.bare.Set(ctx, args[5].(string), args[7], time.Hour).Err(); err == nil {
			err = h.bare.Eval(ctx, protocol.ReleaseScript, []string{lease}, args[6]).Err()
		}
	default:
		return false
	}
	if c, ok := cmd.(*redis.Cmd); ok && err == nil {
		c.SetVal(int64(1))
	}
	cmd.SetErr(err)
	return true
}

// stampLate writes the current tag versions into the entry.
func (h hook) stampLate(ctx context.Context, args []any) {
	editEntry(args, "t", func(stamps map[string]string) map[string]string {
		for tag := range stamps {
			stamp := protocol.StampKey(tag)
			hold, _ := protocol.HoldKey(stamp)
			stamps[tag], _ = h.bare.Eval(ctx, protocol.StampScript, []string{stamp, hold}, rand.Text(), time.Hour.Milliseconds()).Text()
		}
		return stamps
	})
}

// editEntry changes a field of the entry that a fill is about to store.
func editEntry[T any](args []any, field string, change func(T) T) {
	text, _ := args[7].([]byte)
	head, value, raw := bytes.Cut(text, []byte{'\n'}) // format 2
	var entry map[string]json.RawMessage
	var part T
	if json.Unmarshal(head, &entry) != nil || json.Unmarshal(entry[field], &part) != nil {
		return
	}
	entry[field], _ = json.Marshal(change(part))
	head, _ = json.Marshal(entry)
	if raw {
		head = append(append(head, '\n'), value...)
	}
	args[7] = head
}

// spoilMessage makes the number of a message follow the last one, or each ? of a pattern two bytes.
func spoilMessage(plant string, m *protocol.Message, last uint64) {
	if plant == ignoredGap && last > 0 {
		m.Seq = last + 1
	}
	for i, pattern := range m.Patterns {
		if plant == characterGlobs {
			m.Patterns[i] = strings.NewReplacer(`\\`, `\\`, `\?`, `\?`, "?", "??").Replace(pattern)
		}
	}
}

// A spoiledConn changes the messages of a subscription in RESP 2.
type spoiledConn struct {
	net.Conn
	plant string
	wire  *wire
	last  uint64
	left  []byte // that is yet to be read
}

// dialSpoiled returns a dialer whose connections change messages.
func dialSpoiled(plant string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &spoiledConn{Conn: conn, plant: plant, wire: newWire(conn)}, err
	}
}

// Read returns the bytes of a reply.
func (c *spoiledConn) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		value, err := c.wire.value()
		if err != nil {
			return 0, err
		}
		c.left = c.wire.take()
		if parts, _ := value.([]any); len(parts) == 3 && parts[0] == "message" {
			m, err := protocol.DecodeMessage([]byte(parts[2].(string)))
			if err != nil {
				return 0, err
			}
			spoilMessage(c.plant, &m, c.last)
			c.last = m.Seq
			text := m.Append(nil, protocol.FormatEvent)
			c.left = fmt.Appendf(nil, "*3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(parts[1].(string)), parts[1], len(text), text)
		}
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}
