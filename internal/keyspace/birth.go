package keyspace

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

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

// ask returns a TIME for a node. Send it before the first UNLINK, but not as the
// first command of a pipeline: if that one fails, the client library may send the whole pipeline
// again.
//
// The time from the answered attempt counts. Answers come in the order of the commands, so commands
// that are sent again to a node without an answer for its time are unlinked after the new answer.
func (b *birth) ask(ctx context.Context, s shard) redis.Cmder {
	c := newTimeCommand(ctx, s.tag)
	b.asked, b.addrs = append(b.asked, c), append(b.addrs, s.addr)
	return c
}

// read returns the least time of all nodes, in microseconds since 1970, and the time of each, or 0 and
// none if they are unknown. A node that did not answer has not acknowledged any unlink. read records a
// refusal.
func (b *birth) read(known *clock) (least uint64, all []Reading) {
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
