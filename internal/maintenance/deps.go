package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// Deps are the dependencies that all services of one worker share.
type Deps struct {
	Redis    Redis
	Store    *store.Store
	State    *State
	Channels Channels
	Lease    *SettleLease
	Map      interface{ Map() *invalidation.Map } // the one in use
	Source   *OutboxID
	Log      *slog.Logger
}

// Redis has all calls of a worker to Redis. It is a keyspace.Port, or a wrapper that measures one or,
// in tests, fails on demand.
type Redis interface {
	// The beacon, and what became of the unlinks that other epochs have acknowledged.
	CheckBeacon(ctx context.Context) (keyspace.Position, error)
	Survived(ctx context.Context, epochs []string) (map[string]uint64, error)
	ConfirmMoved(ctx context.Context, last map[string]uint64) error
	Doubt()
	Unconfirmed() bool
	CannotTell(since time.Time) bool
	Away() []string

	// Invalidation.
	Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error)
	Sweep(ctx context.Context, patterns []string, watch func(keyspace.Progress)) (keyspace.SweepResult, error)
	TakeSet(ctx context.Context, set string, id uint64, gone func(members []string) error) (keyspace.TakenSet, error)
	TakeSets(ctx context.Context, requests []keyspace.SetRequest, gone func(members []string) error) (keyspace.TakenSets, error)

	// Messages and heartbeats.
	Publish(ctx context.Context, channel string, f protocol.Format, news keyspace.News) (keyspace.Published, error)
	Receivers() int64
	Introduce(outboxID string, lease time.Duration)
	Beat(ctx context.Context, channel, moved, withheld string, asOf time.Time) error
	Goodbye(ctx context.Context, channel string) error
	Epoch(channel string) string
	Listen(ctx context.Context, channel string, l keyspace.Listener)

	// Entries, for spot checks and shadow reads.
	Look(ctx context.Context, asked []keyspace.Asked) ([]keyspace.Seen, []*keyspace.Master, error)
	Repair(ctx context.Context, key, head string, held bool) (bool, error)
	Shadows(ctx context.Context, after string) (reports []protocol.Shadow, last string, err error)
	EntryDigest(ctx context.Context, key string) (string, error)
}

// Channels are those that a worker publishes on.
type Channels interface {
	// Publish announces keys and patterns that were unlinked.
	Publish(context.Context, keyspace.News) (keyspace.Published, error)
	// Numbered lists the channels whose messages have numbers: those that take heartbeats.
	Numbered() []HeartbeatChannel
}
