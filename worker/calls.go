package worker

import (
	"context"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/protocol"
)

// A measuredRedis measures calls to Redis, and records the number of subscribers of messages. Scans
// and index sets, which take many calls, are in sweep_seconds.
type measuredRedis struct {
	redisPort
	times   callTimes
	metrics *metrics
}

func (c measuredRedis) CheckBeacon(ctx context.Context) (keyspace.Position, error) {
	defer c.times.begin(callBeacon)()
	return c.redisPort.CheckBeacon(ctx)
}

func (c measuredRedis) Survived(ctx context.Context, epochs []string) (map[string]uint64, error) {
	defer c.times.begin(callCompare)()
	return c.redisPort.Survived(ctx, epochs)
}

func (c measuredRedis) Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error) {
	defer c.times.begin(callUnlink)()
	return c.redisPort.Unlink(ctx, targets)
}

func (c measuredRedis) Publish(ctx context.Context, channel string, f protocol.Format, news keyspace.News) (keyspace.Published, error) {
	defer c.times.begin(callPublish)()
	done, err := c.redisPort.Publish(ctx, channel, f, news)
	c.metrics.receivers.Set(float64(c.redisPort.Receivers()))
	return done, err
}

func (c measuredRedis) Look(ctx context.Context, asked []keyspace.Asked) ([]keyspace.Seen, []*keyspace.Master, error) {
	defer c.times.begin(callLook)()
	return c.redisPort.Look(ctx, asked)
}

func (c measuredRedis) Beat(ctx context.Context, channel, moved, withheld string, asOf time.Time) error {
	defer c.times.begin(callHeartbeat)()
	err := c.redisPort.Beat(ctx, channel, moved, withheld, asOf)
	c.metrics.receivers.Set(float64(c.redisPort.Receivers()))
	return err
}
