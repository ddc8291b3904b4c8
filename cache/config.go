package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/protocol"
)

// A Config configures a Cache. Usually only Redis is set.
type Config struct {
	// Redis is the shared store: one server, Sentinel or Cluster, read at its masters. The Cache
	// does not close it. Set ContextTimeoutEnabled, which saves a goroutine per command, and
	// DialerRetries to 1: by default go-redis dials again for longer than Timeout, and a refused
	// connection shows as ErrRedisTimeout. New refuses a Ring, a client that reads from replicas,
	// and one with a client-side cache, since these can return unlinked values. A failover client
	// does not reveal that it has ReplicaOnly: its answers are not used, and Healthy returns an
	// error. Nil: every call loads, and callers of Fetch in one process share loads.
	Redis redis.UniversalClient

	// Prefix is put before every key, for example "zahraah:prod:". Braces in it must form a hash
	// tag of Redis Cluster, as in "{shop}:". Tags have no prefix: they are as in the map. Set a
	// prefix. Without one, a key that begins with "lock:fill:", "lock:hold:", "stamp:" or
	// "unstale:" collides with internal keys. Loads of other keys then wait, or invalidated values
	// count.
	Prefix string

	// Codec turns values into bytes. Nil: JSON.
	Codec Codec

	// CompressAbove compresses values of more bytes than this with gzip, if that makes them
	// shorter. 1024 is a good value. Readers understand both forms with any setting, so it can be
	// changed at any time. It cannot be combined with Plain. Zero: no compression.
	CompressAbove int

	// RawValues stores values of another codec than JSON, and compressed ones, as bytes: entries of
	// format 2, which have no base64. See docs/protocol.md. Readers understand both forms with any
	// setting, but older ones replace format 2: set it once all of them read it. It cannot be
	// combined with Plain. False: base64.
	RawValues bool

	// Plain stores the bare output of the codec instead of an entry, for readers that do not know
	// entries. It refuses policies with tags, a stale time, sliding or negative results, and
	// ignores such defaults. A value that gets a tag from its loader is not stored.
	Plain bool

	// Policy is for calls that give none. It has no Checker: see Policy.After. Nil: Moderate.
	Policy *Policy

	// NotFound is an error of loaders that means ErrNotFound: sql.ErrNoRows for most of them. Fetch
	// and Warm return errors that are both, and so does FetchMany, whose loader leaves out what
	// does not exist. Nil: only ErrNotFound does.
	NotFound error

	// Jitter is by how much a TTL varies at most, either way: 0.1 to 0.2. Options.Jitter replaces
	// it. Zero: 0.15.
	Jitter float64

	// Lease is how long a load can take before its result is no longer stored. The lease of the map
	// counts if it is shorter, because second sweeps wait for it; Healthy then returns an error.
	// HardTimeout does not change. Zero: 10 s.
	Lease time.Duration

	// HardTimeout ends a load, and is below Lease. The context of the loader ends then, and callers
	// get ErrLoadTimeout even if the loader continues. Zero: 80 % of Lease.
	HardTimeout time.Duration

	// SoftTimeout is how long a caller waits for a load if a value within StaleOnError is available
	// instead. The load continues. Zero: HardTimeout.
	SoftTimeout time.Duration

	// LoadPause is how long callers get an expired value without another load of its key, within
	// Stale and StaleOnError, after a load of this process has failed or exceeded SoftTimeout. It
	// varies by up to 25 %. At most a minute. Zero: 1 s. Negative: each of them loads.
	LoadPause time.Duration

	// Timeout bounds each command or pipeline of Redis, with all its retries: 10 ms to 5 s. A value
	// that is too large to come within it counts as a command that failed each time that it is
	// read: see Failures. It begins when fewer commands than PoolSize of Redis are in flight: until
	// then, a command waits for up to 20 times as long. In a Cluster nothing waits. A read that shares
	// a pipeline with others also waits for one that is under way. Zero: 100 ms.
	Timeout time.Duration

	// Failures is how many commands in a row must fail before none is sent for Pause. Zero: 5.
	Failures uint32

	// Pause is for how long no command is sent then. One command tries afterwards. Zero: 1 s.
	Pause time.Duration

	// Loads is how many loaders run concurrently in this process. Others wait, within HardTimeout.
	// Fetches of a loader with its own context do not count, since they would wait for the slot of
	// that loader. A loader that continues after its context has ended keeps its slot until it
	// returns. Zero: 256.
	Loads int

	// Popularity makes this process report to Redis, every 30 s and at Close, which keys it reads
	// most, for Cache.Popular in any process with the same Prefix. One in 16 calls of Fetch,
	// FetchResult and FetchRead counts, and one in 16 keys of FetchMany. A report is one pipeline
	// to a sorted set, with at most 500 keys of at most 256 bytes; in a Cluster the set is on one
	// node. The account needs +zincrby +zremrangebyrank +pexpire ~unstale:popular:*.
	Popularity bool

	// Memory keeps values in this process too. Its zero value does not.
	Memory Memory

	// Shadow checks a sample of the values in Redis against their loaders. Its zero value does not.
	Shadow Shadow

	// Hooks watch what the Cache does, for tracing.
	Hooks Hooks

	// Logger receives outages and closings of L1. Nil: slog.Default().
	Logger *slog.Logger
}

// Memory configures L1, the in-process cache.
//
// L1 values are used only while the workers' messages arrive, because a missed message could be an
// invalidation: see Cache.Healthy.
type Memory struct {
	// Size is how many values are kept at most. Zero: none.
	Size int

	// Bytes bounds the heap that entries take: about 200 bytes each, and their keys, values and
	// tags. Of a slice or a map, L1 measures 16 elements. It does not measure what unexported
	// fields point to. With GOGC=100, the process grows by up to 2.3 times Bytes. A larger value is
	// not kept. Each value counts for at least Bytes/Size, so large and small values together may
	// stay below both bounds. At least Size. Zero: 256 MiB.
	Bytes int

	// TTL bounds how long a value is kept, for every policy. Zero: 60 s.
	TTL time.Duration

	// Channel is the publish channel of the map. If workers move to another channel, the Cache
	// subscribes to that one too. Without Size it subscribes only briefly, to find out where
	// workers write if they do not write to this database. Zero: "cache:invalidate".
	Channel string

	// Sources are the outboxes whose workers must send heartbeats, by the name in their heartbeats:
	// see outbox.Source. Healthy looks for their workers without Size too. Required with Size,
	// unless MaxStaleness is set.
	Sources []string

	// Period is how often a worker sends heartbeats. Zero: 1 s.
	Period time.Duration

	// MaxBehind is how far behind the invalidation of an outbox may be before Healthy returns
	// ErrBehind: the age of the latest time before which everything committed is invalidated, by
	// the heartbeats. Values are still used, because Redis has the same ones. If the map has
	// patterns, set it above the time of a sweep. At least two periods. Zero: 5 s, or three periods
	// if that is longer.
	MaxBehind time.Duration

	// CloseBehind gives out nothing from memory while the invalidation is behind by more than
	// MaxBehind. Redis holds the same old entries, so this costs load and makes answers no fresher,
	// unless entries in Redis expire earlier than in memory.
	CloseBehind bool

	// MaxStaleness enables L1 without heartbeats, while the subscription exists. Each value is kept
	// at most this long, and may be that old after an invalidation that did not arrive. Zero:
	// heartbeats are required.
	MaxStaleness time.Duration

	// MessageKeys are the keys of workers: one, or two during a rotation; see
	// worker.Config.MessageKey. A message that none of them has signed, or whose time differs from
	// the time of Redis by more than three periods, evicts its keys and patterns, counts in
	// Statistics.Rejected, and has no other effect. Messages in the array format have no MAC and
	// are rejected too. The account needs +time. Without Size the keys protect what heartbeats
	// report about the database of workers. Nil: each message is accepted.
	MessageKeys []protocol.MessageKey

	// Report makes this process record in Redis, at most once per second, which messages of workers
	// it has received. "unstale history" then lists the process among those that evicted a key. The
	// account needs +xadd %W~unstale:evicted. Reports can get lost, which Statistics.Unreported
	// counts. Messages in the array format have no numbers to report.
	Report bool

	// Process is the name of this process in reports: UTF-8 of at most 128 bytes. Zero: its host
	// and process id, such as "web-1:312".
	Process string
}

// WithDefaults returns a copy with every zero replaced that has a default.
func (c Config) WithDefaults() Config {
	c.Codec = cmp.Or(c.Codec, JSON)
	c.Policy = c.Policy.on(Moderate)
	c.Jitter = cmp.Or(c.Jitter, 0.15)
	c.Lease = cmp.Or(c.Lease, 10*time.Second)
	c.HardTimeout = cmp.Or(c.HardTimeout, c.Lease*8/10)
	c.SoftTimeout = cmp.Or(c.SoftTimeout, c.HardTimeout)
	c.LoadPause = cmp.Or(c.LoadPause, time.Second)
	c.Timeout = cmp.Or(c.Timeout, 100*time.Millisecond)
	c.Pause = cmp.Or(c.Pause, time.Second)
	c.Failures = cmp.Or(c.Failures, 5)
	c.Loads = cmp.Or(c.Loads, 256)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	m := &c.Memory
	m.Bytes = cmp.Or(m.Bytes, max(defaultBytes, m.Size))
	m.Channel = cmp.Or(m.Channel, protocol.DefaultChannel)
	m.TTL = cmp.Or(m.TTL, time.Minute)
	m.Period = cmp.Or(m.Period, time.Second)
	m.MaxBehind = cmp.Or(m.MaxBehind, max(5*time.Second, silentPeriods*m.Period))
	c.Shadow.Rate = cmp.Or(c.Shadow.Rate, 1)
	if m.Report || c.Shadow.Fraction > 0 {
		m.Process = cmp.Or(m.Process, processName())
	}
	return c
}

// processName returns the name of this process where it is given none.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + ":" + strconv.Itoa(os.Getpid())
}

// Validate names every field at fault. It expects defaults to be applied.
func (c Config) Validate() error {
	var faults rules
	name, m, reports := c.Codec.Name(), c.Memory, c.Memory.Report || c.Shadow.Fraction > 0
	_, hasLease := protocol.LeaseKey(c.Prefix + "1")
	faults.refuseIf(!(c.Jitter >= 0.1 && c.Jitter <= 0.2), "Jitter is %v, wanted 0.1 to 0.2", c.Jitter) // not a number either
	faults.between("Lease", c.Lease, 10*time.Millisecond, time.Hour)
	faults.between("HardTimeout", c.HardTimeout, time.Millisecond, c.Lease-1)
	faults.between("SoftTimeout", c.SoftTimeout, time.Millisecond, c.HardTimeout)
	faults.between("LoadPause", c.LoadPause, math.MinInt64, time.Minute)
	faults.between("Timeout", c.Timeout, 10*time.Millisecond, 5*time.Second)
	faults.between("Pause", c.Pause, time.Millisecond, time.Minute)
	faults.refuseIf(!hasLease, "Prefix is %q, whose braces form no hash tag, so its keys have no lease and are never stored: close the hash tag, as in %q, or leave out the braces", c.Prefix, "{shop}:")
	faults.refuseIf(c.Loads < 1, "Loads is %d, wanted 1 at least", c.Loads)
	faults.refuseIf(c.CompressAbove < 0, "CompressAbove is %d, wanted none or more", c.CompressAbove)
	faults.refuseIf(c.CompressAbove > 0 && c.Plain, "CompressAbove is %d with Plain, which has no room to say that a value is compressed", c.CompressAbove)
	faults.refuseIf(c.RawValues && c.Plain, "RawValues is set with Plain, which has no entries: leave out one of them")
	faults.refuseIf(name == "" && c.Codec != JSON, "Codec has no name, which is how values of cache.JSON are marked: embed a codec, and give it a Name of its own")
	faults.refuseIf(!utf8.ValidString(name), "Codec is called %q, wanted UTF-8", name)
	faults.refuseIf(isPackedName(name), "Codec is called %q, which is how a compressed value is marked", name)
	faults.refuseIf(c.Policy.after != nil, "Policy has a Checker, which knows the writes of one caller: give the policy of After to that caller's calls")
	faults.refuseIf(c.Plain && !c.Policy.plain, "Policy has tags, a stale time, sliding or negative results, which Plain has no room for")
	faults.refuseIf(slices.Contains(m.Sources, ""), "Memory.Sources has an empty one: each is what outbox.Source returns")
	if m.Size != 0 {
		faults.refuseIf(m.Size < 0, "Memory.Size is %d, wanted none or more", m.Size)
		faults.refuseIf(m.Bytes < m.Size, "Memory.Bytes is %d, wanted Memory.Size (%d) at least", m.Bytes, m.Size)
		faults.between("Memory.TTL", m.TTL, time.Millisecond, longestTTL)
		faults.between("Memory.Period", m.Period, time.Millisecond, time.Minute)
		faults.between("Memory.MaxBehind", m.MaxBehind, 2*m.Period, longestTTL)
		faults.refuseIf(m.MaxStaleness < 0, "Memory.MaxStaleness is %v, wanted none or more", m.MaxStaleness)
		faults.refuseIf(len(m.Sources) == 0 && m.MaxStaleness == 0, "Memory.Sources is empty: name the outboxes whose workers must be heard, or accept Memory.MaxStaleness")
		faults.refuseIf(c.Redis == nil, "Memory needs Redis, which says what is gone")
	}
	faults.refuseIf(c.Popularity && c.Redis == nil, "Popularity needs Redis, which adds up what processes read")
	faults.refuseIf(len(m.MessageKeys) > maxMessageKeys, "Memory.MessageKeys has %d keys, wanted at most %d: the one that workers sign with, and the one before or after it", len(m.MessageKeys), maxMessageKeys)
	for _, key := range m.MessageKeys {
		err := key.Validate()
		faults.refuseIf(err != nil, "Memory.MessageKeys: %w", err)
	}
	c.Shadow.validate(&c, &faults)
	faults.refuseIf(m.Report && m.Size == 0, "Memory.Report is set without Memory.Size: nothing is kept that could be evicted")
	faults.refuseIf(reports && (len(m.Process) > protocol.MaxProcess || !utf8.ValidString(m.Process)), "Memory.Process is %.40q of %d bytes, wanted UTF-8 of at most %d", m.Process, len(m.Process), protocol.MaxProcess)
	return errors.Join(append(faults, readsMasters(c.Redis))...)
}

// rules collects an error for each rule that a configuration breaks.
type rules []error

// refuseIf adds a fault where a rule is broken.
func (r *rules) refuseIf(broken bool, format string, args ...any) {
	if broken {
		*r = append(*r, fmt.Errorf(format, args...))
	}
}

func (r *rules) between(name string, d, least, most time.Duration) {
	r.refuseIf(d < least || d > most, "%s is %v, wanted %v to %v", name, d, least, most)
}

// readsMasters refuses clients that can return unlinked values: from replicas, which lag behind,
// from a client-side cache, or from a shard of their choice.
func readsMasters(client redis.UniversalClient) error {
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("redis is a nil %T: give a client, or leave it out", client)
	}
	switch client := client.(type) {
	case interface{ Options() *redis.RingOptions }:
		return errors.New("redis is a Ring, whose shards the worker does not know: use a single server, Sentinel or Cluster")
	case interface{ Options() *redis.ClusterOptions }:
		if o := client.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return errors.New("redis reads from replicas, which lag behind an UNLINK: turn off ReadOnly, RouteByLatency and RouteRandomly")
		}
	case interface{ Options() *redis.Options }:
		if o := client.Options(); o.ClientSideCacheConfig != nil || o.ClientSideCache != nil {
			return errors.New("redis caches in the client, which lags behind an UNLINK: turn off ClientSideCacheConfig and ClientSideCache")
		}
	}
	return nil
}

// Hooks are called by the goroutine that does the work; they must not block. A nil hook is not
// called. A panic of a hook is logged, at most once per minute, and the work continues without the
// hook. If a hook returns no context, the given one is used. For example, a span of OpenTelemetry
// begins in a hook and ends in the function that it returns.
type Hooks struct {
	// Fetch is called when Fetch finds no value in L1; FetchMany and Warm do not call it. The
	// function that it returns, if any, is called with the source of the value and whether it is
	// stale, or with an error.
	Fetch func(ctx context.Context, key string) (context.Context, func(from Source, stale bool, err error))
	// Load is called before a loader runs. The loader gets the context that it returns. The
	// function that it returns, if any, is called with the error of the load.
	Load func(ctx context.Context, key string) (context.Context, func(error))
	// Redis is called before a command or a pipeline is sent, with its purpose: read, slide, lease,
	// fill, release, stamps, expire, unlink, report or popular. Reads of several callers can share a
	// pipeline, which has the values of the context of one of them.
	Redis func(ctx context.Context, verb string) (context.Context, func(error))
	// Evict is called with the keys and patterns of a message.
	Evict func(keys, patterns []string)
}

func beginHook(ctx context.Context, hook func(context.Context, string) (context.Context, func(error)), what string) (context.Context, func(error)) {
	if hook == nil {
		return ctx, nil
	}
	return hook(ctx, what)
}

func endHook(hook func(error), err error) {
	if hook != nil {
		hook(err)
	}
}

// guarded returns the hooks, none of which can panic.
func (h Hooks) guarded(logger *slog.Logger) Hooks {
	g := &hookGuard{logger: logger}
	if fetch := h.Fetch; fetch != nil {
		h.Fetch = func(ctx context.Context, key string) (inner context.Context, ended func(Source, bool, error)) {
			inner = ctx
			defer g.caught("Fetch")
			if inner, ended = fetch(ctx, key); inner == nil {
				inner = ctx
			}
			if hook := ended; hook != nil {
				ended = func(from Source, stale bool, err error) {
					defer g.caught("Fetch")
					hook(from, stale, err)
				}
			}
			return inner, ended
		}
	}
	if evict := h.Evict; evict != nil {
		h.Evict = func(keys, patterns []string) {
			defer g.caught("Evict")
			evict(keys, patterns)
		}
	}
	h.Load, h.Redis = g.around("Load", h.Load), g.around("Redis", h.Redis)
	return h
}

// A hookGuard keeps panics of hooks from their callers.
type hookGuard struct {
	logger     *slog.Logger
	complaints complaints
}

// around guards a hook that has begin's form.
func (g *hookGuard) around(name string, hook func(context.Context, string) (context.Context, func(error))) func(context.Context, string) (context.Context, func(error)) {
	if hook == nil {
		return nil
	}
	return func(ctx context.Context, what string) (inner context.Context, ended func(error)) {
		inner = ctx
		defer g.caught(name)
		if inner, ended = hook(ctx, what); inner == nil {
			inner = ctx
		}
		if after := ended; after != nil {
			ended = func(err error) {
				defer g.caught(name)
				after(err)
			}
		}
		return inner, ended
	}
}

// caught must be deferred around the call of a hook. It logs a panic.
func (g *hookGuard) caught(name string) {
	if p := recover(); p != nil && g.complaints.due() {
		g.logger.Error("a hook panicked; it changes nothing else", "hook", name, "panic", p, "stack", string(debug.Stack()))
	}
}
