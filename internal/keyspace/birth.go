package keyspace

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// timeRetry is for how long an account without +time is not asked again: each refusal is an entry in Redis' ACL log.
const timeRetry = time.Minute

// A clock knows whether the account may use TIME. The zero clock has yet to find out.
type clock struct {
	deniedUntil atomic.Int64 // nanoseconds since 1970
}

func (c *clock) mayAsk() bool { return time.Now().UnixNano() >= c.deniedUntil.Load() }

// A birth asks every node for its time, in the pipeline that goes to each in any case.
type birth struct {
	asked   []*timeCommand
	unknown bool // the account may not ask
}

// ask is a TIME for the node that has the tag. Send it before the first UNLINK, but not as a pipeline's first command:
// the client library judges by the first one's error whether to send all of them again.
//
// What counts is the time that a node told in the attempt that was answered. Answers come in order, so whatever is sent
// again to a node whose time was not answered is unlinked after the new answer.
func (b *birth) ask(ctx context.Context, tag string) redis.Cmder {
	c := newTimeCommand(ctx, tag)
	b.asked = append(b.asked, c)
	return c
}

// micros is the least time that a node told, in microseconds since 1970; 0 where it is not known. A node that did not
// answer has not unlinked anything that anybody knows of. A refusal is noted.
func (b *birth) micros(known *clock) uint64 {
	least := uint64(0)
	for _, c := range b.asked {
		now, err := c.Result()
		switch {
		case err == nil && !now.IsZero():
			if n := uint64(now.UnixMicro()); least == 0 || n < least {
				least = n
			}
		case firstWord(err) == "NOPERM":
			known.deniedUntil.Store(time.Now().Add(timeRetry).UnixNano())
			b.unknown = true
		case err == nil, firstWord(err) != "":
			b.unknown = true
		}
	}
	if b.unknown {
		return 0
	}
	return least
}

// A timeCommand is a TIME that finds its node, in a pipeline for a Cluster, as a command with a key would, and sends
// nothing of that key.
type timeCommand struct{ *redis.TimeCmd }

func newTimeCommand(ctx context.Context, tag string) *timeCommand {
	c := redis.NewTimeCmd(ctx, "time", tag)
	if tag != "" {
		c.SetFirstKeyPos(1)
	}
	return &timeCommand{c}
}

// Args is what is sent.
func (c *timeCommand) Args() []any { return c.TimeCmd.Args()[:1] }
