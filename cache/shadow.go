package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/protocol"
)

// Shadow configures shadow reads, which find entries that no invalidation has reached, for example
// after a write without a row. Its zero value turns them off.
//
// For a sample of the values that Fetch, FetchMany and similar functions read from Redis, not from
// L1, the loader runs again in the background, after the caller has its answer. If its result
// differs, it runs again, after the lease of the map and three periods of heartbeats. If the
// entry is still the same then, the results are equal, and no message was missed or named the key
// or one of its tags, the entry is reported in Redis. A worker checks whether a row explains the
// difference, and otherwise logs the key: see docs/observability.md. Values are not reported, and
// the entry stays until its TTL.
//
// Shadow reads run under the limit of Config.Loads and with HardTimeout, and none starts while all
// loaders are in use or Redis is unavailable. They count as loads in Statistics, and Hooks.Load is
// called. Close does not wait for them. Loaders must read the primary, and must not depend on the
// time or on chance. If a deployment changes what they return, entries of before differ until their
// TTL.
type Shadow struct {
	// Fraction of the values from Redis that is checked, from 0 to 1. It requires Memory.Size and
	// Memory.Sources, since messages show whether an invalidation came meanwhile, and excludes
	// Plain and Memory.MaxStaleness. The account needs +xadd %W~unstale:shadow. Zero: none.
	Fraction float64

	// Rate is how many values are checked per second at most: each takes one load, or two if the
	// first result differs. Zero: 1.
	Rate float64
}

// ShadowStatistics count shadow reads by their result.
type ShadowStatistics struct {
	Equal uint64 `json:"equal"` // the loader returned what the entry has
	// it did not, and the entry was invalidated, replaced or expired soon after
	Gone uint64 `json:"gone"`
	// it did not, twice, and the entry stayed: reported for a worker to check
	Differs          uint64 `json:"differs"`
	NotDeterministic uint64 `json:"notDeterministic"` // two loads returned different values
	// a load failed or found no free loader, a message may have been missed, or the report failed
	Unknown uint64 `json:"unknown"`
}

// mostShadows is how many shadow reads are under way at most.
const mostShadows = 64

var (
	errShadowPause = errors.New("redis has refused recent reports of shadow reads")
	errShadowSize  = errors.New("the key or its tags are longer than a report may be")
)

// validate adds a fault for every field of c that shadow reads exclude.
func (s Shadow) validate(c *Config, faults *rules) {
	on, deaf := s.Fraction != 0, c.Memory.Size == 0 || len(c.Memory.Sources) == 0 || c.Memory.MaxStaleness != 0
	faults.refuseIf(!(s.Fraction >= 0 && s.Fraction <= 1), "Shadow.Fraction is %v, must be 0 to 1", s.Fraction)
	faults.refuseIf(!(s.Rate >= 0.001 && s.Rate <= 1000), "Shadow.Rate is %v, must be 0.001 to 1000", s.Rate)
	faults.refuseIf(on && c.Plain, "Shadow is set with Plain, whose values have no lease time")
	faults.refuseIf(on && !c.Plain && deaf, "Shadow needs Memory.Size and Memory.Sources without MaxStaleness: heartbeats show whether a message was missed")
}

// A shadows checks a sample of the values that were read from Redis. A nil shadows checks none.
type shadows struct {
	c       *Cache
	config  Shadow
	running chan struct{}
	next    atomic.Int64 // when the next value may be checked, in Unix nanoseconds
	counts  [5]atomic.Uint64

	mu      sync.Mutex // guards refusal, and is held during a report
	refusal refusal
}

// A shadowResult is the result of a shadow read.
type shadowResult int

const (
	shadowUnknown shadowResult = iota
	shadowEqual
	shadowGone
	shadowDiffers
	shadowUnstable
)

func newShadows(c *Cache) *shadows {
	return &shadows{
		c: c, config: c.config.Shadow, running: make(chan struct{}, mostShadows),
		refusal: refusal{logger: c.config.Logger, subject: "shadow reads", rule: "+xadd %W~" + protocol.ShadowKey},
	}
}

// hit checks a value that was read from Redis after the mark, if it is in the sample. It returns
// immediately. load is the loader of the key.
func (s *shadows) hit(ctx context.Context, r *request, found reading, since mark, load func(context.Context) (any, error)) {
	if s == nil || rand.Float64() >= s.config.Fraction || !s.due(time.Now().UnixNano()) {
		return
	}
	select {
	case s.running <- struct{}{}:
	default:
		return
	}
	own := *r // which does not extend a sliding value
	own.untyped, own.load = true, load
	one := &shadowRead{request: &own, entry: found.entry, digest: digest(found.text), since: since}
	ctx = flightContext{s.c.run.life, ctx}
	go func() {
		result := shadowUnknown // if the loader ends its goroutine
		defer func() {
			s.counts[result].Add(1)
			<-s.running
		}()
		if result = one.compare(ctx); result == shadowDiffers && s.report(one) != nil {
			result = shadowUnknown
		}
	}()
}

// due reports whether the rate allows another check now, and then counts it. All checks of a second
// may come together.
func (s *shadows) due(now int64) bool {
	interval := int64(float64(time.Second) / s.config.Rate)
	last := s.next.Load()
	next := max(last, now-max(int64(time.Second)-interval, 0))
	return now >= next && s.next.CompareAndSwap(last, next+interval)
}

// report tells workers of an entry that differs.
func (s *shadows) report(one *shadowRead) error {
	told := protocol.Shadow{
		Process: s.c.config.Memory.Process, Key: one.request.name, Tags: one.entry.tagNames(), Lease: time.UnixMicro(one.entry.Birth), Loaded: time.UnixMilli(one.loaded), Digest: one.digest,
	}
	if tags, _ := json.Marshal(told.Tags); len(told.Key) > protocol.MaxShadowKey || len(tags) > protocol.MaxShadowTags {
		return errShadowSize
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal.lasts() {
		return errShadowPause
	}
	_, err := send(s.c.run.life, s.c.redis, "report", func(ctx context.Context) (string, error) {
		return s.c.redis.client.XAdd(ctx, &redis.XAddArgs{Stream: protocol.ShadowKey, MaxLen: protocol.MaxShadows, Approx: true, Values: told.Fields()}).Result()
	})
	s.refusal.logOnce(err)
	return err
}

func (s *shadows) statistics() (all ShadowStatistics) {
	if s == nil {
		return all
	}
	n := func(result shadowResult) uint64 { return s.counts[result].Load() }
	return ShadowStatistics{Equal: n(shadowEqual), Gone: n(shadowGone), Differs: n(shadowDiffers), NotDeterministic: n(shadowUnstable), Unknown: n(shadowUnknown)}
}

// A shadowRead is the check of one value that was read from Redis after the mark since.
type shadowRead struct {
	request *request // its own, with a loader
	entry   entry
	digest  string
	since   mark
	loaded  int64 // when the first load began, in milliseconds by the clock of Redis
}

// compare compares the value with that of the loader, and a different one again after a wait.
func (s *shadowRead) compare(ctx context.Context) shadowResult {
	r := s.request
	if s.entry.Birth <= 0 || s.since.open == 0 || !r.c.memory.values.nameable(r.key, s.entry.tagNames()) {
		return shadowUnknown
	}
	cached, ok := s.cached()
	if !ok {
		return shadowUnknown
	}
	s.entry.Value = nil // only its memory
	s.loaded = r.c.redis.clock.now()
	first, ok := s.load(ctx)
	switch {
	case !ok:
		return shadowUnknown
	case first.equals(cached):
		return shadowEqual
	}
	// A load that began before the write has lost its lease by then, and a lost subscription shows.
	wait := r.c.redis.alive.lease.get() + silentPeriods*r.c.config.Memory.Period
	if sleep.For(ctx, wait) != nil {
		return shadowUnknown
	}
	again, err := r.readValue(ctx)
	switch {
	case err != nil:
		return shadowUnknown
	case again.state < fresh || digest(again.text) != s.digest:
		return shadowGone
	}
	second, ok := s.load(ctx)
	switch {
	case !ok:
		return shadowUnknown
	case !second.equals(first):
		return shadowUnstable
	}
	return r.c.memory.named(r.name, s.entry.tagNames(), s.since)
}

// named returns shadowDiffers if no message since the mark can have named a name in Redis or one of
// tags.
func (m *memory) named(name string, tags []string, since mark) shadowResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.gate.open.Load() == 0, m.doubted(since), m.values.log.overrun(since):
		return shadowUnknown
	case m.values.log.meant(since.at, name, tags):
		return shadowGone
	}
	return shadowDiffers
}

// A shadowValue is a value as a caller gets it from Redis, or that there is none.
type shadowValue struct {
	negative bool
	value    any
	text     []byte // as the codec writes it
}

// equals also compares the values: a codec may write maps in any order.
func (v shadowValue) equals(o shadowValue) bool {
	return v.negative == o.negative && (bytes.Equal(v.text, o.text) || reflect.DeepEqual(v.value, o.value))
}

// cached returns the value of the entry. The caller's own may have changed meanwhile.
func (s *shadowRead) cached() (shadowValue, bool) {
	if s.entry.Negative != 0 {
		return shadowValue{negative: true}, true
	}
	config := s.request.c.config
	value, err := s.entry.open(config.Codec, s.request.decode)
	if err != nil {
		return shadowValue{}, false
	}
	text, err := marshal(config.Codec, value)
	return shadowValue{value: value, text: text}, err == nil
}

// load runs the loader, and returns its value as the entry would have it. It returns false if the
// load does not start, fails, or has a value that is not stored.
func (s *shadowRead) load(ctx context.Context) (shadowValue, bool) {
	c := s.request.c
	if ctx.Err() != nil || c.redis.healthy() != nil || len(c.loaders.slots) == cap(c.loaders.slots) {
		return shadowValue{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.HardTimeout)
	defer cancel()
	fill, l := &Fill{}, loading{key: s.request.key, load: s.request.load}
	c.loaders.callLoader(ctx, fill, &l)
	fill.mu.Lock()
	defer fill.mu.Unlock()
	switch {
	case l.started == 0, ctx.Err() != nil, fill.skip:
		return shadowValue{}, false
	case isNotFound(l.err):
		return shadowValue{negative: true}, true
	case l.err != nil:
		return shadowValue{}, false
	}
	text, err := marshal(c.config.Codec, l.result)
	if err != nil {
		return shadowValue{}, false
	}
	value, err := s.request.decode(c.config.Codec, text)
	if err != nil {
		return shadowValue{}, false
	}
	text, err = marshal(c.config.Codec, value)
	return shadowValue{value: value, text: text}, err == nil
}
