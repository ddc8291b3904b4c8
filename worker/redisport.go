package worker

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/protocol"
)

// A redisPort is the part of Redis that the worker uses: parts of a keyspace.Keyspace, or wrappers
// of tests that fail on demand. A service takes only the part that it calls.
type redisPort interface {
	beaconPort
	awayPort
	unlinkPort
	publishPort
	sweepPort
	setPort
	listenPort
	entryPort
	shadowPort
}

type beaconPort interface {
	CheckBeacon(ctx context.Context) (keyspace.Position, error)
	Survived(ctx context.Context, epochs []string) (map[string]uint64, error)
	ConfirmMoved(ctx context.Context, last map[string]uint64) error
}

type awayPort interface {
	Away() []string
}

type unlinkPort interface {
	Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error)
}

type publishPort interface {
	Publish(ctx context.Context, channel string, f protocol.Format, news keyspace.News) (keyspace.Published, error)
	Receivers() int64
	Introduce(source string, lease time.Duration)
	Beat(ctx context.Context, channel, moved, withheld string, asOf time.Time) error
	Goodbye(ctx context.Context, channel string) error
	Epoch(channel string) string
}

type sweepPort interface {
	Sweep(ctx context.Context, patterns []string, watch func(keyspace.Progress)) (keyspace.SweepResult, error)
}

type setPort interface {
	TakeSet(ctx context.Context, set string, id uint64, gone func(members []string) error) (keyspace.TakenSet, error)
	TakeSets(ctx context.Context, requests []keyspace.SetRequest, gone func(members []string) error) (keyspace.TakenSets, error)
}

type listenPort interface {
	Listen(ctx context.Context, channel string, l keyspace.Listener)
}

type entryPort interface {
	Look(ctx context.Context, asked []keyspace.Asked) ([]keyspace.Seen, []*keyspace.Master, error)
	Repair(ctx context.Context, key, head string, held bool) (bool, error)
}

type shadowPort interface {
	Shadows(ctx context.Context, after string) (reports []protocol.Shadow, last string, err error)
	EntryDigest(ctx context.Context, key string) (string, error)
}

// redisParts joins the parts of a Keyspace to a redisPort.
type redisParts struct {
	beaconPort
	awayPort
	unlinkPort
	publishPort
	sweepPort
	setPort
	listenPort
	entryPort
	shadowPort
}

func newRedisPort(k *keyspace.Keyspace) redisPort {
	return redisParts{k.Beacons, k.Shards, k.Unlinker, k.Publisher, k.Sweeper, k.Sets, k.Subscriber, k.Entries, k.Contents}
}
