package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Cache reads and stores cached values. Make one per process and Redis. It is safe for concurrent
// use.
type Cache struct {
	config     Config
	redis      *backend
	memory     *memory     // nil without one
	reports    *reporter   // nil without one
	popularity *popularity // nil without one
	shadows    *shadows    // nil without any
	flights    flights
	leases     *leaseClient
	versions   tagVersions
	loaders    loaders
	seen       seenStamps
	touched    touches
	counts     counts
	reads      readCounts
	misses     expectation

	complaints complaints
	luck       func() float64 // exponentially distributed: see eagerness

	run      running
	listener *listener
}

// New returns a Cache with defaults applied to config. It sends nothing: an unavailable Redis shows
// at the first call. The error names every invalid field. Call Close when done.
func New(config Config) (*Cache, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	config.Hooks = config.Hooks.guarded(config.Logger)
	c := &Cache{config: config, luck: rand.ExpFloat64}
	c.loaders.slots, c.loaders.counts, c.loaders.hook, c.loaders.logger = make(chan struct{}, config.Loads), &c.counts, config.Hooks.Load, config.Logger
	c.flights.pauses.length = config.LoadPause
	c.run.startLife()
	c.redis = newBackend(config)
	c.redis.alive = newAliveCheck(config, &c.redis.clock, &c.run, &c.counts)
	c.redis.stalled = &c.counts.stalled
	c.redis.reads = newReadQueues(config.Redis, c.run.launch)
	if c.redis.clock.keeper == nil { // not in an application's test
		c.redis.stalls.launch, c.redis.stalls.life, c.redis.stalls.keep = c.run.launch, c.run.life, config.Timeout
	}
	c.leases = &leaseClient{redis: c.redis, counts: &c.counts, lost: lostLeases{redis: c.redis, run: &c.run}}
	c.versions = tagVersions{c.redis}
	if config.Memory.Size > 0 {
		c.memory = newMemory(config)
		c.memory.room.reads = &c.reads
	}
	if c.memory != nil && config.Memory.Report {
		c.reports = newReporter(config, c.redis, &c.reads)
	}
	if config.Popularity && c.redis.clock.keeper == nil {
		c.popularity = newPopularity(config, c.redis)
		c.run.every(popularInterval, c.popularity.sendCounts)
	}
	if config.Shadow.Fraction > 0 && c.redis.clock.keeper == nil {
		c.shadows = newShadows(c)
	}
	c.listener = newListener(config, c.redis, c.memory, c.reports, &c.run, &c.counts)
	if c.memory == nil {
		c.redis.alive.wrong.listen = c.listener.listenBriefly
	} else {
		c.run.launchEar(func() { c.listener.listen(c.run.life) })
	}
	if c.reports != nil {
		c.run.every(reportInterval, c.report)
	}
	return c, nil
}

// Close empties L1, ends the subscription and the contexts of loads, and waits until they have
// ended: at most HardTimeout plus three commands. It waits at most Timeout for the subscription.
// Only the client can end a handshake with a Redis that does not reply, after its ReadTimeout; the
// Cache receives nothing from it after Close. Calls that come after the start of Close return
// ErrClosed, even if Close returns an error. With Memory.Report, messages whose keys were evicted
// earlier are reported. A second Close waits again. The Redis client stays open.
func (c *Cache) Close() error {
	c.run.refuseWork()
	c.memory.close() // while its invalidations still arrive
	c.run.end()
	return c.run.wait(c.config.HardTimeout+3*c.config.Timeout, c.config.Timeout)
}

// report sends what the listener has recorded. After Close, it first waits for the message that the
// listener works on, at most for Timeout.
func (c *Cache) report(ctx context.Context) {
	if c.run.life.Err() != nil {
		select {
		case <-c.listener.ended:
		case <-time.After(c.config.Timeout):
		}
	}
	c.reports.report(ctx)
}

// Clear empties L1. Values that were requested before do not enter it. Clear does not change Redis,
// and Redis stores the results of running loads.
func (c *Cache) Clear() { c.memory.clear() }

// Healthy returns nil if values are cached as configured. Otherwise the error is the reason:
//
//   - Redis is unavailable: every call loads and nothing is stored;
//   - Redis has refused the latest value, because it has no memory left (ErrRedisOutOfMemory) or a
//     permission is missing;
//   - Config.Lease is longer than the lease of the map;
//   - the workers write to another server or database;
//   - L1 is closed because no worker's messages arrive;
//   - old entries prove that workers unlink keys elsewhere (ErrUnlinkedElsewhere);
//   - invalidation is behind (ErrBehind);
//   - L1 keeps nothing (ErrMemoryOverflow);
//   - Close was called.
//
// It sends nothing.
func (c *Cache) Healthy() error {
	if c.run.life.Err() != nil {
		return ErrClosed
	}
	return cmp.Or(c.redis.healthy(), c.redis.writes.refusal(), c.redis.alive.healthy(), c.memory.healthy())
}

// name returns the key in Redis.
func (c *Cache) name(key string) string {
	if c.config.Prefix == "" {
		return key
	}
	return c.config.Prefix + key
}

// policy returns the one to use, checked against the Cache.
func (c *Cache) policy(p *Policy) (*Policy, error) {
	p = p.on(c.config.Policy)
	if c.config.Plain && !p.plain {
		return nil, errors.New("the policy has tags, a stale time, sliding or negative results, which a plain cache has no room for")
	}
	return p, nil
}

// A running is the life of a Cache, with the goroutines that Close waits for. It is safe for
// concurrent use.
type running struct {
	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex // guards closed against work
	closed bool
	// work has the goroutines that load or send commands to Redis, and callers that hold leases. A
	// command takes at most a Timeout.
	work sync.WaitGroup
	ears sync.WaitGroup // goroutines of the subscription
}

// startLife starts the life. Call it before any other method.
func (r *running) startLife() { r.life, r.end = context.WithCancel(context.Background()) }

// launch runs f in a goroutine that Close waits for. It reports false after Close.
func (r *running) launch(f func()) bool { return r.launchIn(&r.work, f) }

// launchEar runs f like launch, in a goroutine of the subscription.
func (r *running) launchEar(f func()) bool { return r.launchIn(&r.ears, f) }

func (r *running) launchIn(group *sync.WaitGroup, f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	group.Go(f)
	return true
}

// every calls f in each interval, and one last time when Close has begun. The context of f does not
// end.
func (r *running) every(interval time.Duration, f func(context.Context)) {
	r.launch(func() {
		ticks := time.Tick(interval)
		for open := true; open; {
			select {
			case <-r.life.Done():
				open = false
			case <-ticks:
			}
			f(context.WithoutCancel(r.life))
		}
	})
}

// stay makes Close wait for the calling goroutine until it calls leave. It reports false after
// Close.
func (r *running) stay() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.work.Add(1)
	}
	return !r.closed
}

func (r *running) leave() { r.work.Done() }

// refuseWork makes launch and stay report false.
func (r *running) refuseWork() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// wait waits for the goroutines, for each group at most as long as given. It returns an error if
// the work has not ended by then.
func (r *running) wait(work, ears time.Duration) error {
	deaf, ear := ended(&r.ears), time.After(ears)
	select {
	case <-ended(&r.work):
	case <-time.After(work):
		return errors.New("close cache: a loader does not end with its context")
	}
	select {
	case <-deaf:
	case <-ear:
	}
	return nil
}

// ended returns a channel that is closed when all goroutines of the group have ended.
func ended(group *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	return done
}

// clockLife is how long a comparison with the clock of Redis is valid.
const clockLife = 30 * time.Second

// A timekeeper is a client that knows the time: package cachetest's, whose clock a test moves.
type timekeeper interface{ Now() time.Time }

// A clock derives the time of Redis from the time that has passed in this process, independent of
// steps of the machine clock. Until Redis has answered, both are assumed to agree.
type clock struct {
	keeper timekeeper // if not nil, it provides the time instead of Redis
	begun  time.Time
	base   atomic.Int64 // time of Redis at begun, in microseconds
	until  atomic.Int64 // when to ask Redis again, as time since begun
	drift  atomic.Int64 // of the machine's clock since begun, when Redis was asked
}

// stepSize limits the difference between the machine clock and the elapsed time. Beyond it, Redis
// is asked again. The cause is a step of the clock or a pause of the whole machine.
const stepSize = time.Second

func (c *clock) start() {
	c.begun = time.Now()
	c.base.Store(c.begun.UnixMicro())
}

// now returns the time of Redis in milliseconds.
func (c *clock) now() int64 {
	if c.keeper != nil {
		return c.keeper.Now().UnixMilli()
	}
	return (c.base.Load() + time.Since(c.begun).Microseconds()) / 1000
}

// due reports whether to ask Redis for its time.
func (c *clock) due() bool {
	if c.keeper != nil {
		return false
	}
	now := time.Now()
	step := c.driftAt(now) - time.Duration(c.drift.Load())
	return now.Sub(c.begun) >= time.Duration(c.until.Load()) || step.Abs() > stepSize
}

// driftAt returns how far the machine's clock has gone beyond the time that has passed.
func (c *clock) driftAt(now time.Time) time.Duration {
	// Round strips the monotonic reading
	return now.Round(0).Sub(c.begun.Round(0)) - now.Sub(c.begun)
}

// heard processes the time of Redis in microseconds, from the answer to a command sent at sent.
func (c *clock) heard(micros int64, sent time.Time) {
	at := sent.Sub(c.begun) + time.Since(sent)/2
	c.base.Store(micros - at.Microseconds())
	c.drift.Store(int64(c.driftAt(time.Now())))
	c.until.Store(int64(at + clockLife))
}

// timeOf returns the time in a lease value or a tag version, in microseconds, or 0.
func timeOf(text string) int64 {
	_, digits, _ := strings.Cut(text, ":")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// Statistics count since New and only grow, except L1Size. Every key that Fetch, FetchMany or Get
// read is one request, with any outcome. A refused call, for example after Close, is not a request.
type Statistics struct {
	L1Hits uint64 `json:"l1Hits"` // from L1
	// from Redis, stale ones and negative ones among them
	L2Hits uint64 `json:"l2Hits"`
	Misses uint64 `json:"misses"` // all others
	Sets   uint64 `json:"sets"`   // values that Redis took
	// values that Redis refused, since an invalidation came before them
	Refused    uint64 `json:"refused"`
	Loads      uint64 `json:"loads"`      // calls of loaders
	LoadErrors uint64 `json:"loadErrors"` // loads that failed, without ErrNotFound
	// values that could not be stored, or prolonged, for another reason
	Errors uint64 `json:"errors"`
	// calls that had to load, since their caller's writes are not known to be settled
	Unsettled uint64 `json:"unsettled"`
	// keys, tags and patterns that were received or deleted here
	Invalidations uint64 `json:"invalidations"`
	L1Size        int    `json:"l1Size"` // values in memory now, roughly
	// values not kept, since too much was evicted during their load
	L1Overflows uint64 `json:"l1Overflows"`
	// values that memory dropped or did not take because it was full
	L1Evictions uint64 `json:"l1Evictions"`
	// messages with a pattern that cannot be compiled: each has emptied memory
	PatternErrors uint64 `json:"patternErrors"`
	// messages without a MAC of Memory.MessageKeys, or too old: only their keys and patterns were
	// evicted
	Rejected uint64 `json:"rejected"`
	// answers of a server that workers had left: none was used
	Strays uint64 `json:"strays"`
	// commands to Redis that timed out because this process did not run
	Stalled uint64 `json:"stalled"`
	// answers of a server or database that the reader's workers do not write to
	Elsewhere uint64 `json:"elsewhere"`
	// entries read that workers had unlinked before: see ErrUnlinkedElsewhere
	OldEntries uint64 `json:"oldEntries"`
	// leases for as long as the map's, which is shorter than Config.Lease
	ShortLeases uint64 `json:"shortLeases"`
	NamesHeard  uint64 `json:"namesHeard"` // keys and patterns of messages, without tag versions
	// of these, names with Config.Prefix: none of thousands means a wrong prefix
	NamesOwn uint64 `json:"namesOwn"`
	// received messages that Memory.Report should have reported and has not
	Unreported uint64 `json:"unreported"`
	// see Config.Shadow
	Shadow        ShadowStatistics `json:"shadow"`
	TotalRequests uint64           `json:"totalRequests"`
	HitRate       float64          `json:"hitRate"` // hits of either kind by requests, 0 without any
	// by entry of the map's section reads; nil if no read of a generated package was fetched
	Reads map[string]ReadStatistics `json:"reads,omitempty"`
	// fingerprints of the maps that the generated packages were made from, sorted: see
	// ReadMap.Version
	ReadsVersions []string `json:"readsVersions,omitempty"`
	// up to 20 forms of keys that Fetch and FetchResult looked for in Redis without a read of a
	// generated package, such as "shop:product:#", once one was fetched
	OtherKeys []string `json:"otherKeys,omitempty"`
}

type counts struct {
	l2Hits, misses, sets, refused, loads, loadErrors, errors, deleted, unsettled, strays, stalled, elsewhere, shortLeases, patternErrors, rejected atomic.Uint64
}

func (c *counts) countRead(s state) {
	if s >= stale {
		c.l2Hits.Add(1)
	} else {
		c.misses.Add(1)
	}
}

func (c *counts) loaded(err error) {
	c.loads.Add(1)
	if err != nil && !isNotFound(err) {
		c.loadErrors.Add(1)
	}
}

func (c *counts) filled(accepted bool) {
	if accepted {
		c.sets.Add(1)
	} else {
		c.refused.Add(1)
	}
}

func (c *counts) failed() { c.errors.Add(1) }

// Statistics returns what was counted so far.
func (c *Cache) Statistics() Statistics {
	n := &c.counts
	s := Statistics{
		L2Hits: n.l2Hits.Load(), Misses: n.misses.Load(), Sets: n.sets.Load(), Refused: n.refused.Load(),
		Loads: n.loads.Load(), LoadErrors: n.loadErrors.Load(), Errors: n.errors.Load(), Invalidations: n.deleted.Load(), Unsettled: n.unsettled.Load(), Strays: n.strays.Load(), Stalled: n.stalled.Load(),
		Elsewhere: n.elsewhere.Load(), ShortLeases: n.shortLeases.Load(),
	}
	if m := c.memory; m != nil {
		s.L1Hits = m.hits.Snapshot().Hits
		s.L1Size = m.values.store.EstimatedSize()
		s.L1Evictions = m.room.full.Load()
		s.L1Overflows, s.PatternErrors = m.overflow.total.Load(), n.patternErrors.Load()
		s.Invalidations += m.evicted.Load()
		s.OldEntries = m.unlinks.total.Load()
		s.NamesOwn = m.names.own.Load()
		s.NamesHeard = s.NamesOwn + m.names.other.Load()
		s.Rejected = n.rejected.Load()
		s.Unreported = c.reports.dropCount()
	}
	s.Shadow = c.shadows.statistics()
	s.Reads, s.ReadsVersions = c.reads.statistics()
	s.OtherKeys = c.reads.others.sorted()
	s.TotalRequests = s.L1Hits + s.L2Hits + s.Misses
	if s.TotalRequests > 0 {
		s.HitRate = float64(s.L1Hits+s.L2Hits) / float64(s.TotalRequests)
	}
	return s
}
