package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

const (
	// unseenPause is the wait between two questions before the first answer with a field.
	unseenPause = time.Second
	// deniedPause is the wait after a refusal. Redis logs each one.
	deniedPause = time.Minute
	// elsewhereAfter is how long the field must be absent while workers report that they write it.
	elsewhereAfter = 3 * time.Second
)

// errLeft rejects an answer. It does not mean that Redis is away.
var errLeft = fmt.Errorf("%w: workers have left the server that answered", ErrRedisConnection)

// An aliveCheck proves that answers come from a server where workers write: see [protocol.AliveKey].
// Each pipeline asks, because after a switch-over the connections of one pool may lead to several
// servers, and go-redis chooses the connection. Safe for concurrent use.
type aliveCheck struct {
	client  optioned // nil: nothing is asked
	clock   *clock
	sources []string
	launch  func(func()) bool
	life    context.Context
	logger  *slog.Logger
	strays  *atomic.Uint64

	seen   atomic.Bool            // a worker has written here
	only   atomic.Pointer[string] // the source whose field is asked for; nil: all fields
	asked  atomic.Int64           // when an answer without a field was last asked for, as Unix nanoseconds
	denied atomic.Int64           // until when nothing is asked, likewise
	told   atomic.Bool            // the log reports the refusal
	last   atomic.Pointer[parsed]
	lease  atomic.Int64 // of the map, in milliseconds; zero: unknown
	left   atomic.Int64 // when a new connection last led to another server, as Unix nanoseconds

	absent atomic.Int64 // since when no answer has had a field, as Unix nanoseconds; zero: the latest had one
	still  atomic.Int64 // when the latest answer without one came
	beat   atomic.Int64 // when the latest heartbeat came of a worker that has written somewhere
	missed atomic.Bool  // the log reports that it is elsewhere
	search search
}

// An optioned is a client of one server or of Sentinel. Its options make another client.
type optioned interface {
	Options() *redis.Options
	Pipelined(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// A parsed is the latest answer, which does not change for a second.
type parsed struct {
	text  string
	alive protocol.Alive
}

func (c *Cache) newAliveCheck() *aliveCheck {
	a := &aliveCheck{sources: c.config.Memory.Sources, clock: &c.redis.clock, launch: c.launch, life: c.life, logger: c.config.Logger, strays: &c.counts.strays}
	if _, fake := c.config.Redis.(timekeeper); !fake {
		a.client, _ = c.config.Redis.(optioned)
	}
	if len(a.sources) == 1 {
		a.only.Store(&a.sources[0])
	}
	return a
}

// due reports whether the next pipeline asks.
func (a *aliveCheck) due(now time.Time) bool {
	switch {
	case a.client == nil, now.UnixNano() < a.denied.Load():
		return false
	case a.seen.Load():
		return true
	}
	return now.UnixNano()-a.asked.Load() >= int64(unseenPause)
}

// ask adds the question to a pipeline, with TIME if timed.
func (a *aliveCheck) ask(ctx context.Context, p redis.Pipeliner, timed bool) (q question) {
	if !a.seen.Load() {
		a.asked.Store(time.Now().UnixNano())
	}
	if timed {
		q.sent, q.time = time.Now(), p.Time(ctx)
	}
	if only := a.only.Load(); only != nil && a.seen.Load() {
		q.one = p.HGet(ctx, protocol.AliveKey(""), *only)
	} else {
		q.all = p.HGetAll(ctx, protocol.AliveKey(""))
	}
	return q
}

// A question has the commands that are added to a pipeline.
type question struct {
	sent time.Time
	time *redis.TimeCmd // nil: not asked
	one  *redis.StringCmd
	all  *redis.MapStringStringCmd
}

func (q question) err() error {
	if q.one != nil {
		return q.one.Err()
	}
	return q.all.Err()
}

// answered evaluates the answer to a question. The error is nil or errLeft.
func (a *aliveCheck) answered(ctx context.Context, q question) error {
	if err := q.err(); err != nil && !errors.Is(err, redis.Nil) {
		a.refused(err)
		return nil
	}
	found, ok := a.read(q)
	switch {
	case ok && a.young(found):
		a.lease.Store(found.Lease)
		a.present()
		return nil
	case !ok:
		a.missing()
		if !a.seen.Load() {
			return nil
		}
	}
	err := a.moved(ctx)
	if err != nil {
		a.strays.Add(1)
	}
	return err
}

// young reports whether a field was written in the last 3 s, by Redis' clock.
func (a *aliveCheck) young(found protocol.Alive) bool {
	return a.clock.now()*1000-found.Time <= protocol.AliveLife
}

// read returns the latest field of the sources, and sets the clock. ok is false if there is none.
func (a *aliveCheck) read(q question) (latest protocol.Alive, ok bool) {
	if q.time != nil && q.time.Err() == nil {
		a.clock.heard(q.time.Val().UnixMicro(), q.sent)
	}
	if q.one != nil {
		return a.parse(q.one.Val())
	}
	for source, text := range q.all.Val() {
		if len(a.sources) > 0 && !slices.Contains(a.sources, source) {
			continue
		}
		if found, parsed := a.parse(text); parsed && found.Time > latest.Time {
			latest, ok = found, true
			if len(q.all.Val()) == 1 {
				a.only.Store(&source)
			}
		}
	}
	return latest, ok
}

func (a *aliveCheck) parse(text string) (protocol.Alive, bool) {
	if last := a.last.Load(); last != nil && last.text == text {
		return last.alive, true
	}
	found, err := protocol.ParseAlive(text)
	if err != nil {
		return found, false
	}
	a.last.Store(&parsed{text, found})
	return found, true
}

// refused records that Redis refused a question. The rest of the pipeline is not affected.
func (a *aliveCheck) refused(err error) {
	if !redis.HasErrorPrefix(err, "NOPERM") {
		return
	}
	a.denied.Store(time.Now().Add(deniedPause).UnixNano())
	if !a.told.Swap(true) {
		a.logger.LogAttrs(a.life, slog.LevelWarn, "cannot read where workers write: a demoted master goes unnoticed",
			slog.Any("error", err), slog.String("cure", "ACL SETUSER the reader's user with +hget +hgetall +time %R~unstale:alive*"))
	}
}

// present records an answer from a server where workers write.
func (a *aliveCheck) present() {
	if !a.seen.Load() {
		a.seen.Store(true)
	}
	if a.absent.Load() == 0 {
		return
	}
	a.absent.Store(0)
	if a.missed.Swap(false) {
		a.logger.LogAttrs(a.life, slog.LevelInfo, "workers write to this server and database")
	}
}

// missing records an answer without a field.
func (a *aliveCheck) missing() {
	now := time.Now().UnixNano()
	a.absent.CompareAndSwap(0, now)
	a.still.Store(now)
	if err := a.elsewhere(); err != nil && !a.missed.Swap(true) {
		a.logger.LogAttrs(a.life, slog.LevelError, "workers write elsewhere", slog.Any("error", err))
	}
}

// heartbeat records that a worker wrote the field somewhere.
func (a *aliveCheck) heartbeat(b *protocol.Beat, now time.Time) {
	if b.Alive && slices.Contains(a.sources, b.Source) {
		a.beat.Store(now.UnixNano())
	}
	if !a.seen.Load() && b.Lease > 0 {
		a.lease.Store(b.Lease)
	}
}

// elsewhere returns an error if heartbeats report the field, but this server and database has none.
func (a *aliveCheck) elsewhere() error {
	absent, beat := a.absent.Load(), a.beat.Load()
	if absent == 0 || a.still.Load()-absent < int64(elsewhereAfter) || time.Now().UnixNano()-beat > int64(elsewhereAfter) {
		return nil
	}
	return fmt.Errorf("%w: the workers of outbox %q write to another server or another database: compare the address and the database number with the worker's REDIS_URL",
		ErrRedisConnection, a.sources)
}

// leaseOf returns the shorter one of a lease and the map's.
func (a *aliveCheck) leaseOf(configured time.Duration) time.Duration {
	if longest := time.Duration(a.lease.Load()) * time.Millisecond; longest > 0 {
		return min(configured, longest)
	}
	return configured
}

// healthy returns an error if workers write elsewhere, or if the map's lease is shorter than lease.
func (a *aliveCheck) healthy(lease time.Duration) error {
	if err := a.elsewhere(); err != nil {
		return err
	}
	if longest := a.leaseOf(lease); longest < lease {
		return fmt.Errorf("Config.Lease is %v, and the map's lease is %v, which counts: lower Config.Lease, or raise lease in the map", lease, longest)
	}
	return nil
}
