package worker

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/protocol"
)

// A cache is what the worker needs of Redis: a *keyspace.Keyspace, or one that a test wraps to fail on demand.
type cache interface {
	CheckBeacon(ctx context.Context) (keyspace.Position, error)
	Away() []string
	Survived(ctx context.Context, epochs []string) (map[string]uint64, error)
	ConfirmMoved(ctx context.Context, last map[string]uint64) error
	Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error)
	Publish(ctx context.Context, channel string, f protocol.Format, news keyspace.News) (keyspace.Published, error)
	Receivers() int64
	Introduce(source string, lease time.Duration)
	Beat(ctx context.Context, channel, moved string, asOf time.Time) error
	Goodbye(ctx context.Context, channel string) error
	Epoch(channel string) string
	Sweep(ctx context.Context, patterns []string, watch func(keyspace.Progress)) (keyspace.SweepResult, error)
	TakeSet(ctx context.Context, set string, id uint64, gone func(members []string) error) (keyspace.TakenSet, error)
	TakeSets(ctx context.Context, requests []keyspace.SetRequest, gone func(members []string) error) (keyspace.TakenSets, error)
	Listen(ctx context.Context, channel string, l keyspace.Listener)
}

var _ cache = (*keyspace.Keyspace)(nil)
