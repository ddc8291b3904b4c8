package keyspace

import (
	"context"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A Port has the methods of a Keyspace's parts that a worker calls, as one value that can be
// wrapped: to measure it, or to let it fail in a test.
type Port struct{ k *Keyspace }

// Port returns the Port of k.
func (k *Keyspace) Port() Port { return Port{k} }

func (p Port) CheckBeacon(ctx context.Context) (Position, error) {
	return p.k.Beacons.CheckBeacon(ctx)
}

func (p Port) Survived(ctx context.Context, epochs []string) (map[string]uint64, error) {
	return p.k.Beacons.Survived(ctx, epochs)
}

func (p Port) ConfirmMoved(ctx context.Context, last map[string]uint64) error {
	return p.k.Beacons.ConfirmMoved(ctx, last)
}

func (p Port) Doubt() { p.k.Shards.Doubt() }

func (p Port) Unconfirmed() bool { return p.k.Shards.Unconfirmed() }

func (p Port) CannotTell(since time.Time) bool { return p.k.Shards.CannotTell(since) }

func (p Port) Away() []string {
	return p.k.Shards.Away()
}

func (p Port) Unlink(ctx context.Context, targets []Target) (Unlinked, error) {
	return p.k.Unlinker.Unlink(ctx, targets)
}

func (p Port) Sweep(ctx context.Context, patterns []string, watch func(Progress)) (SweepResult, error) {
	return p.k.Sweeper.Sweep(ctx, patterns, watch)
}

func (p Port) TakeSet(ctx context.Context, set string, id uint64, gone func(members []string) error) (TakenSet, error) {
	return p.k.Sets.TakeSet(ctx, set, id, gone)
}

func (p Port) TakeSets(ctx context.Context, requests []SetRequest, gone func(members []string) error) (TakenSets, error) {
	return p.k.Sets.TakeSets(ctx, requests, gone)
}

func (p Port) Publish(ctx context.Context, channel string, f protocol.Format, news News) (Published, error) {
	return p.k.Publisher.Publish(ctx, channel, f, news)
}

func (p Port) Receivers() int64 {
	return p.k.Publisher.Receivers()
}

func (p Port) Introduce(outboxID string, lease time.Duration) {
	p.k.Publisher.Introduce(outboxID, lease)
}

func (p Port) Beat(ctx context.Context, channel, moved, withheld string, asOf time.Time) error {
	return p.k.Publisher.Beat(ctx, channel, moved, withheld, asOf)
}

func (p Port) Goodbye(ctx context.Context, channel string) error {
	return p.k.Publisher.Goodbye(ctx, channel)
}

func (p Port) Epoch(channel string) string {
	return p.k.Publisher.Epoch(channel)
}

func (p Port) Listen(ctx context.Context, channel string, l Listener) {
	p.k.Subscriber.Listen(ctx, channel, l)
}

func (p Port) Look(ctx context.Context, asked []Asked) ([]Seen, []*Master, error) {
	return p.k.Entries.Look(ctx, asked)
}

func (p Port) Repair(ctx context.Context, key, head string, held bool) (bool, error) {
	return p.k.Entries.Repair(ctx, key, head, held)
}

func (p Port) Shadows(ctx context.Context, after string) ([]protocol.Shadow, string, error) {
	return p.k.Contents.Shadows(ctx, after)
}

func (p Port) EntryDigest(ctx context.Context, key string) (string, error) {
	return p.k.Contents.EntryDigest(ctx, key)
}
