package maintenance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

const (
	// Period is the interval between heartbeats. Readers time out after three periods.
	Period = time.Second
	// pollLife is how long after a poll heartbeats may be sent: one period, plus as much as a poll
	// may be late.
	pollLife = Period * 5 / 4
	// goodbyeLimit bounds the sending of the final messages on all channels.
	goodbyeLimit = 500 * time.Millisecond
)

var (
	errUnproven  = errors.New("what waits was not listed yet")
	errShardAway = errors.New("part of redis is away, and rows with keys there wait")
	errChannels  = errors.New("not all workers publish on this channel")
	errIdle      = fmt.Errorf("the idle interval is longer than %v, so heartbeats would not show in time whether mysql can be polled", Period)
)

// HeartbeatConfig configures a Sender.
type HeartbeatConfig struct {
	Redis    HeartbeatRedis
	Channels func() []HeartbeatChannel // whose messages have numbers
	Log      *slog.Logger

	Idle  time.Duration        // the longest wait between two polls of MySQL
	Limit time.Duration        // of one attempt, the same as of a batch
	Lease func() time.Duration // the longest one that a reader may take
	// called with the lease of the heartbeats that were sent; zero: none are sent
	Announced func(lease time.Duration)
	// the time up to which all commits are invalidated; zero: unknown
	Proven   func() time.Time
	Lost     func(error) // called with a loss that the Sender finds
	LossSeen func() bool // whether a loss waits for the loop to heal it

	Count interface{ Inc() }        // heartbeats
	Sends interface{ Set(float64) } // 1 while heartbeats are sent, 0 while they are withheld
}

// HeartbeatRedis sends heartbeats.
type HeartbeatRedis interface {
	CheckBeacon(context.Context) (keyspace.Position, error)
	Away() []string
	Introduce(source string, lease time.Duration)
	Beat(ctx context.Context, channel, moved, withheld string, asOf time.Time) error
	Goodbye(ctx context.Context, channel string) error
}

// A Channel is a channel for heartbeats. Moved is the current map's channel, if it is a different
// one. Withheld is why the channel takes no heartbeat now, or "".
type HeartbeatChannel struct{ Name, Moved, Withheld string }
