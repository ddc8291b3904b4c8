package keyspace

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A StatusHash is a hash in Redis. Workers publish their state there.
type StatusHash string

// The hashes of StatusHashes.
const (
	WorkersHash StatusHash = protocol.Prefix + "workers" // a field for each worker
	SourcesHash StatusHash = protocol.Prefix + "sources" // a field for each database
)

// StatusRules are the ACL rules that StatusHashes need.
const StatusRules = "+time +hset +hdel +hgetall +pexpire ~unstale:alive* ~unstale:workers ~unstale:sources"

const (
	alivePrefix = protocol.AlivePrefix
	// aliveTTL is how long the field of an outbox stays after its last worker stopped.
	aliveTTL = time.Minute
	// statusTTL exceeds what the hashes tell: when each worker was last there, and what each journal
	// had.
	statusTTL = 30 * 24 * time.Hour
)

// StatusHashes are where workers publish their state in Redis, for readers, for `unstale status`
// and for each other. Nothing that a worker does to keys depends on them. Safe for concurrent
// use.
type StatusHashes struct {
	nodes  *Nodes
	shards *Shards
	alive  *atomic.Bool // the latest Alive succeeded
}

// Alive writes a under the ID of an outbox, with the time of each master, on all available masters.
// It also removes the outboxes that no worker has written for a minute. The error is an *Outage of
// one of the masters; the others are done. Heartbeats include whether the latest call succeeded.
//
// It returns the shortest lease that the masters have now, which may be of another worker (see
// [protocol.Alive.WithShorterLease]). It also returns the longest lease that a master had before,
// zero if none had one, even after an error.
func (b *StatusHashes) Alive(ctx context.Context, outboxID string, a protocol.Alive) (has, had time.Duration, err error) {
	defer func() { b.alive.Store(err == nil) }()
	present, err := b.shards.present(ctx)
	if err != nil {
		return 0, 0, err
	}
	has = time.Duration(a.Lease) * time.Millisecond
	hashes := make([]readHash, len(present))
	var commands []redis.Cmder
	for i, s := range present {
		hashes[i] = newReadHash(ctx, protocol.AliveKey(s.tag))
		commands = append(commands, hashes[i].time, hashes[i].all)
	}
	if err := b.nodes.exec(ctx, b.nodes.client, commands); err != nil {
		return 0, 0, err
	}
	commands = nil
	var failed error
	for _, h := range hashes {
		now, fields, err := h.result()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		a.Time = now.UnixMicro()
		written := a
		if before, err := protocol.ParseAlive(fields[outboxID]); err == nil {
			written = a.WithShorterLease(before)
			had = max(had, time.Duration(before.Lease)*time.Millisecond)
			has = min(has, time.Duration(written.Lease)*time.Millisecond)
		}
		commands = append(commands, redis.NewIntCmd(ctx, "hset", h.name, outboxID, written.String()),
			redis.NewBoolCmd(ctx, "pexpire", h.name, aliveTTL.Milliseconds()))
		for other, text := range fields {
			if o, err := protocol.ParseAlive(text); err == nil && now.Sub(time.UnixMicro(o.Time)) > aliveTTL && other != outboxID {
				commands = append(commands, redis.NewIntCmd(ctx, "hdel", h.name, other))
			}
		}
	}
	if len(commands) > 0 {
		failed = errors.Join(failed, b.send(ctx, commands))
	}
	return has, had, b.nodes.outageOrNil(ctx, failed)
}

// A Posted is one field of a hash.
type Posted struct {
	Field, Text string
	Age         time.Duration // by the clock of Redis
}

// Post writes a field of a hash, with the time of Redis. The error is an *Outage.
func (b *StatusHashes) Post(ctx context.Context, hash StatusHash, field, text string) error {
	clock := newTimeCommand(ctx, string(hash))
	if err := b.send(ctx, []redis.Cmder{clock}); err != nil {
		return b.nodes.outage(ctx, err)
	}
	stamped := strconv.FormatInt(clock.Val().UnixMicro(), 10) + " " + text
	return b.nodes.outageOrNil(ctx, b.send(ctx, []redis.Cmder{
		redis.NewIntCmd(ctx, "hset", string(hash), field, stamped),
		redis.NewBoolCmd(ctx, "pexpire", string(hash), statusTTL.Milliseconds()),
	}))
}

// Read returns the fields of a hash, in no order. It leaves out what Post has not written. The
// error is an *Outage.
func (b *StatusHashes) Read(ctx context.Context, hash StatusHash) ([]Posted, error) {
	h := newReadHash(ctx, string(hash))
	if err := b.nodes.exec(ctx, b.nodes.client, []redis.Cmder{h.time, h.all}); err != nil {
		return nil, err
	}
	now, fields, err := h.result()
	if err != nil {
		return nil, b.nodes.outage(ctx, err)
	}
	var list []Posted
	for field, stamped := range fields {
		at, text, _ := strings.Cut(stamped, " ")
		if n, err := strconv.ParseInt(at, 10, 64); err == nil {
			list = append(list, Posted{field, text, now.Sub(time.UnixMicro(n))})
		}
	}
	return list, nil
}

// Remove deletes fields of a hash. The error is an *Outage.
func (b *StatusHashes) Remove(ctx context.Context, hash StatusHash, fields ...string) error {
	if len(fields) == 0 {
		return nil
	}
	args := []any{"hdel", string(hash)}
	for _, f := range fields {
		args = append(args, f)
	}
	return b.nodes.outageOrNil(ctx, b.send(ctx, []redis.Cmder{redis.NewIntCmd(ctx, args...)}))
}

// send sends commands in one pipeline, and returns the first error.
func (b *StatusHashes) send(ctx context.Context, commands []redis.Cmder) error {
	if err := b.nodes.exec(ctx, b.nodes.client, commands); err != nil {
		return err
	}
	return firstError(commands)
}

// A readHash reads a hash and the time of its server.
type readHash struct {
	name string
	time *timeCommand
	all  *redis.MapStringStringCmd
}

func newReadHash(ctx context.Context, name string) readHash {
	return readHash{name, newTimeCommand(ctx, name), redis.NewMapStringStringCmd(ctx, "hgetall", name)}
}

func (h *readHash) result() (now time.Time, fields map[string]string, err error) {
	if now, err = h.time.Result(); err == nil {
		fields, err = h.all.Result()
	}
	return now, fields, err
}
