package cache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"
)

// A Loader gets a value from where it is kept, such as MySQL's primary. It returns ErrNotFound or
// Config.NotFound, wrapped or not, for what does not exist. Its context ends with
// Config.HardTimeout and with Close, not with the caller's, since others may wait for the same
// load; it has the caller's values, and a Fill. It may fetch other keys, by its context. Fetching
// its own key, or one whose load waits for it, returns an error unless that key is cached.
type Loader[T any] = func(ctx context.Context) (T, error)

// A Source is where a value came from.
type Source uint8

// The sources, from the nearest.
const (
	FromMemory Source = iota // of this process
	FromRedis
	FromLoader // this caller's load or one that it has joined
)

func (s Source) String() string { return [...]string{"memory", "Redis", "loader"}[s] }

// A Result is a value and its source.
type Result[T any] struct {
	Value  T
	Source Source
	// Stale reports whether the value has expired and was returned because of Options.Stale or
	// Options.StaleOnError.
	Stale bool
	// FreshFor is how long the value stays fresh, at least. An invalidation can end it earlier. It
	// is 0 if the value has expired, if it was not stored, or if Config.Plain hides the time.
	FreshFor time.Duration
}

// Fetch returns the value of a key from L1 or Redis, or loads and stores it. A nil policy is
// Config.Policy.
//
// The error is the loader's, ErrLoadTimeout, a *PanicError, the context's, or ErrClosed. It is
// never an error of Redis. Concurrent callers of one key in one process can get the same value:
// treat it as read-only if it has pointers, maps or slices.
//
// The codec decides the dynamic type of a value of an interface type: Fetch[any] returns a map for
// a struct, even to the caller whose loader returned the struct. Change the key, or Config.Prefix,
// when T changes its meaning: JSON decodes an old entry into a new struct and leaves missing fields
// at zero.
//
// A value of another type comes from its load and from L1 as the loader returned it. From Redis it
// lacks everything that the codec does not write, for example unexported fields. Do not rely on
// them.
func Fetch[T any](ctx context.Context, c *Cache, key string, load Loader[T], p *Policy) (T, error) {
	c.popularity.sample(key)
	p = p.on(c.config.Policy)
	eager := c.eagerness(p)
	if p.after == nil { // otherwise ask the Checker first
		if k, ok := c.memory.getFresh(key, p, eager); ok {
			if value, ok := valueAs[T](k.value); ok {
				c.memory.hit()
				c.reads.of(p).hit()
				return value, nil
			}
		}
	}
	result, err := fetchAfterMemory(ctx, c, key, load, p, eager)
	return result.Value, err
}

// FetchResult is like Fetch, and also returns the source of the value.
func FetchResult[T any](ctx context.Context, c *Cache, key string, load Loader[T], p *Policy) (Result[T], error) {
	c.popularity.sample(key)
	p = p.on(c.config.Policy)
	eager := c.eagerness(p)
	if p.after == nil {
		if result, ok := inMemory[T](c, key, p, eager); ok {
			c.reads.of(p).hit()
			return result, nil
		}
	}
	return fetchAfterMemory(ctx, c, key, load, p, eager)
}

// inMemory returns the value of the key in L1, unless it is due for an early refresh. The caller has
// no read constraint.
func inMemory[T any](c *Cache, key string, p *Policy, eager float64) (result Result[T], ok bool) {
	k, ok := c.memory.getFresh(key, p, eager)
	if !ok {
		return result, false
	}
	if result.Value, ok = valueAs[T](k.value); !ok {
		return result, false
	}
	result.FreshFor = c.memory.freshFor(k)
	c.memory.hit()
	return result, true
}

// valueAs returns a value of L1 as T, if it is one.
func valueAs[T any](value any) (as T, ok bool) {
	if as, ok = value.(T); !ok && value == nil {
		ok = any(as) == nil // a nil of an interface type is one of every such type
	}
	return as, ok
}

func fetchAfterMemory[T any](ctx context.Context, c *Cache, key string, load Loader[T], p *Policy, eager float64) (result Result[T], err error) {
	r, err := newRequest[T](c, key, p, eager)
	if err != nil {
		return result, err
	}
	if r.constraint, err = c.readConstraint(ctx, p); err != nil {
		return result, err
	}
	n := c.reads.of(p)
	if p.after != nil && r.constraint == anything {
		if result, ok := inMemory[T](c, key, p, eager); ok {
			n.hit()
			return result, nil
		}
	}
	r.load = func(ctx context.Context) (any, error) {
		value, err := load(ctx)
		return asRead(c.config.Codec, value), c.asNotFound(err)
	}
	var ended func(Source, bool, error)
	if hook := c.config.Hooks.Fetch; hook != nil {
		ctx, ended = hook(ctx, key)
	}
	var begin time.Time
	if n != nil {
		begin = time.Now()
	} else {
		c.reads.others.addForm(c.config.Prefix, key)
	}
	got, err := r.fetch(ctx)
	if n != nil {
		n.answered(got.source, got.stale, err, time.Since(begin))
	}
	if ended != nil {
		ended(got.source, got.stale, err)
	}
	if err != nil {
		return result, err
	}
	result.Source, result.Stale, result.FreshFor = got.source, got.stale, max(got.fresh, 0)
	result.Value, _ = got.value.(T) // a nil of an interface type stays one
	return result, nil
}

// A request is one call for one key.
type request struct {
	c      *Cache
	key    string // without the prefix
	name   string // with it
	p      *Policy
	kind   reflect.Type
	load   func(context.Context) (any, error)
	decode func(Codec, []byte) (any, error)

	eager      float64 // see eagerness
	constraint readConstraint
	untyped    bool // it only checks the entry, and does not extend a sliding value
}

func newRequest[T any](c *Cache, key string, p *Policy, eager float64) (*request, error) {
	p, err := c.policy(p)
	if err != nil {
		return nil, err
	}
	if c.run.life.Err() != nil {
		return nil, ErrClosed
	}
	return &request{c: c, key: key, name: c.name(key), p: p, eager: eager, kind: reflect.TypeFor[T](), decode: decodeAs[T]}, nil
}

// asRead returns a value of an interface type as the codec decodes it. The first caller, callers
// that find it in L1, and callers that find it in Redis then get the same type. If the codec cannot
// decode its own output, asRead returns the value unchanged.
func asRead[T any](codec Codec, value T) any {
	if reflect.TypeFor[T]().Kind() != reflect.Interface || any(value) == nil {
		return value
	}
	data, err := marshal(codec, value)
	if err != nil {
		return value
	}
	again, err := decodeAs[T](codec, data)
	if err != nil {
		return value
	}
	return again
}

// decodeAs decodes a value as T. It is the decode function of a request.
func decodeAs[T any](codec Codec, data []byte) (value any, err error) {
	var typed T
	defer refused(&err)
	err = codec.Unmarshal(data, &typed)
	return typed, err
}

// flightID returns the ID of the flights that the request can join.
func (r *request) flightID() flightID { return flightID{name: r.name, kind: r.kind} }

// A got is the result of a request.
type got struct {
	value  any
	source Source
	stale  bool
	stored bool          // of a loaded value: see outcome.accepted
	joined bool          // it is of a flight that another caller began
	fresh  time.Duration // see Result.FreshFor
}

// fetch reads, and loads where that does not do.
func (r *request) fetch(ctx context.Context) (got, error) {
	c := r.c
	self := FillFrom(ctx).refuse(&c.loaders, func(key string) bool { return key == r.key })
	if r.constraint == loaded {
		if self != nil {
			return got{}, self
		}
		return r.past(ctx)
	}
	arrival := c.loaders.events.Load()
	var before *flight
	for round := 0; ; round++ {
		mark := c.memory.mark()
		var led *job
		var found reading
		var err error
		if round == 0 && self == nil && r.leadsFirst(ctx) {
			found, led, err = r.lead(ctx, mark)
		} else {
			found, err = r.readValue(ctx)
		}
		if round == 0 {
			c.counts.countRead(found.state)
		}
		if ended := ctx.Err(); ended != nil && led == nil {
			return got{}, ended
		}
		away := classify(err) != nil
		if round == 0 {
			c.misses.learn(err == nil && found.state < stale)
		}
		switch {
		case found.state == fresh && found.entry.Negative != 0:
			c.shadows.hit(ctx, r, found, mark, r.load)
			return got{source: FromRedis}, ErrNotFound
		case found.state == fresh:
			r.keep(found, mark)
			if found.early {
				r.refresh(ctx, found)
			}
			c.shadows.hit(ctx, r, found, mark, r.load)
			return got{value: found.value, source: FromRedis, fresh: found.life}, nil
		case found.state == stale, found.state == onError && c.flights.pauses.last(r.name):
			r.refresh(ctx, found)
			return got{value: found.value, source: FromRedis, stale: true}, nil
		case self != nil:
			return got{}, self
		}
		g, again, err := r.await(ctx, finding{reading: found, away: away, led: led, before: before}, arrival, round)
		if again == nil {
			return g, err
		}
		before = again
	}
}

// past loads even if L1 or Redis has a value, or a load is running. It reads Redis to learn what to
// replace.
func (r *request) past(ctx context.Context) (got, error) {
	found, err := r.readValue(ctx)
	found = found.past()
	r.c.counts.countRead(found.state)
	if ended := ctx.Err(); ended != nil {
		return got{}, ended
	}
	fl := alone(r.flightID())
	r.launchFlight(ctx, fl, finding{reading: found, away: classify(err) != nil})
	o, err := r.awaitFlight(ctx, fl, reading{})
	if err == nil {
		err = o.err
	}
	if err != nil {
		return got{source: FromLoader}, err
	}
	return got{value: o.value, source: FromLoader, stored: o.accepted, fresh: o.fresh}, nil
}

// mostRounds is how often a caller waits for others' loads, of its process or another one, before
// it does its own.
const mostRounds = 4

// A finding is the input of a load.
type finding struct {
	reading
	away bool // Redis
	led  *job // of a flight that has its lease already, or nil
	// before is the flight that the caller has waited for without a usable result, or nil.
	before *flight
	// unasked reports that every caller has an answer: the load is useful only if its value can be
	// stored.
	unasked bool
}

// await joins a load or begins one. again is the flight if what came of it does not count for a
// caller that came at arrival.
func (r *request) await(ctx context.Context, f finding, arrival uint64, round int) (g got, again *flight, err error) {
	id, found := r.flightID(), f.reading
	var fl *flight
	own := true
	switch {
	case f.led != nil:
		fl = f.led.fl
	case round >= mostRounds, found.state == foreign:
		fl = alone(id)
	case f.before != nil:
		r.c.flights.together(func() { fl, own = r.c.flights.follow(f.before, nil) })
	default:
		fl, own = r.c.flights.join(id, nil)
	}
	if own {
		r.launchFlight(ctx, fl, f)
	}
	o, err := r.awaitFlight(ctx, fl, found)
	switch {
	case err != nil:
		return got{}, nil, err
	case o == nil: // the soft timeout, and the old value still stands
		return got{value: found.value, source: FromRedis, stale: true}, nil, nil
	case o.failed() && found.state == onError && r.still(ctx, found):
		return got{value: found.value, source: FromRedis, stale: true}, nil, nil
	case !own && !o.counts(arrival, r.p.o.Tags):
		return got{}, fl, nil
	case o.err != nil:
		return got{source: FromLoader}, nil, o.err
	}
	source := FromLoader
	if o.started == 0 {
		source = FromRedis
	}
	return got{value: o.value, source: source, stored: o.accepted, joined: !own, fresh: o.fresh}, nil, nil
}

// awaitFlight waits for a flight. After the soft timeout it returns nil without an error if an old
// value can be returned instead.
func (r *request) awaitFlight(ctx context.Context, fl *flight, found reading) (*outcome, error) {
	var soft <-chan time.Time
	if found.state == onError && r.c.config.SoftTimeout < r.c.config.HardTimeout {
		timer := time.NewTimer(r.c.config.SoftTimeout)
		defer timer.Stop()
		soft = timer.C
	}
	if FillFrom(ctx).runsIn(&r.c.loaders) {
		fl.hurry()
	}
	for {
		select {
		case <-fl.done:
			return &fl.outcome, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-soft:
			if r.still(ctx, found) {
				r.c.flights.pauses.pauseLoads(r.name)
				return nil, nil
			}
			soft = nil
		}
	}
}

// still reports whether Redis still holds what was found, and it may be given out: an invalidation
// takes it away.
func (r *request) still(ctx context.Context, found reading) bool {
	again, err := r.readValue(ctx)
	return err == nil && found.standsAs(again)
}

// standsAs reports whether the value that was found equals the value that was read again, and can
// still be returned if a loader fails.
func (found reading) standsAs(again reading) bool {
	return again.state >= onError && string(again.text) == string(found.text)
}

// keep puts what was read into memory.
func (r *request) keep(found reading, since mark) {
	m := r.c.memory
	if m == nil {
		return
	}
	m.unlinks.checkBirth(r.name, found.entry.Birth, since)
	if !r.p.o.SkipMemory {
		m.put(r.key, found.value, found.entry.tagNames(), since, found.life, found.entry.Cost, r.c.reads.of(r.p))
	}
}

// refresh loads in the background, unless another goroutine of this process does, or has failed.
func (r *request) refresh(ctx context.Context, found reading) {
	if r.c.flights.pauses.last(r.name) {
		return
	}
	if fl, own := r.c.flights.join(r.flightID(), nil); own {
		r.launchFlight(ctx, fl, finding{reading: found, unasked: true})
	}
}

// launchFlight runs a flight in a new goroutine.
func (r *request) launchFlight(ctx context.Context, fl *flight, f finding) {
	if f.led != nil {
		defer r.c.run.leave()
	}
	if r.c.run.launch(func() { growStack(); r.runFlight(ctx, fl, f) }) {
		return
	}
	r.c.flights.deliver(fl, outcome{err: ErrClosed})
	if f.led != nil {
		r.c.giveBack(context.WithoutCancel(ctx), f.led)
	}
}

// asNotFound returns a loader's error with ErrNotFound added if it is Config.NotFound.
func (c *Cache) asNotFound(err error) error {
	if err == nil || c.config.NotFound == nil || isNotFound(err) || !errors.Is(err, c.config.NotFound) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotFound, err)
}

// isNotFound reports whether a loader found nothing.
func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

// An expectation predicts whether the next read misses: it does if more than four in five of the
// latest have missed.
type expectation struct{ level atomic.Int32 }

const (
	missExpected = 16 // from this level on
	missCertain  = 32 // the highest one
	hitWeighs    = 4  // misses
)

// learn records a read. It is approximate: losing one of several concurrent updates changes no
// result.
func (e *expectation) learn(missed bool) {
	level := e.level.Load()
	switch {
	case missed && level < missCertain:
		e.level.Store(level + 1)
	case !missed && level > 0:
		e.level.Store(max(level-hitWeighs, 0))
	}
}

func (e *expectation) miss() bool { return e.level.Load() >= missExpected }

// leadsFirst reports whether to request the lease before reading. That saves a round trip if the
// key is missing; if the key exists, the script returns the value. The request must wait for the
// answer after the context of the caller has ended, since an unknown lease blocks other loads. So
// leadsFirst is false if a read would not wait as long. It is also false for sliding values, which
// a read extends. Now and then it is false because a read also returns the time of Redis.
func (r *request) leadsFirst(ctx context.Context) bool {
	b := r.c.redis
	if !r.c.misses.miss() || !b.heeds || r.p.o.Sliding || b.clock.due() || ctx.Err() != nil || !stampable(r.p.o.Tags) {
		return false
	}
	end, limited := ctx.Deadline()
	return !limited || time.Until(end) > b.timeout
}

// lead asks for the lease of a key that is expected to be missing, for a flight that is under way
// from before: no two of this process may wait for each other. led is the flight's job if the lease
// is taken; the caller must start it. Otherwise the flight has ended, with nothing for those that
// have joined it, and the key is as found.
func (r *request) lead(ctx context.Context, since mark) (found reading, led *job, err error) {
	id, names := r.flightID(), namesOf(r.name)
	// only a request that has read can join a running flight: see Options.Stale
	if names.ok && !r.c.flights.under(id) {
		if fl, own := r.c.flights.join(id, nil); own {
			var ended bool
			if found, led, ended, err = r.askLead(ctx, fl, since); ended {
				return found, led, err
			}
		}
	}
	found, err = r.readValue(ctx)
	return found, nil, err
}

// askLead sends the command of lead. ended reports that its answer completes the request.
func (r *request) askLead(ctx context.Context, fl *flight, since mark) (found reading, led *job, ended bool, err error) {
	stays := r.c.run.stay() // until its load is under way: see request.launchFlight
	defer func() {          // even if the client panics
		if led != nil {
			return
		}
		r.c.flights.deliver(fl, nothing)
		if stays {
			r.c.run.leave()
		}
	}()
	if !stays {
		return reading{}, nil, false, nil
	}
	j := r.job(fl, reading{})
	g, err := j.takeLease(detached(ctx))
	switch {
	case classify(err) != nil:
		return reading{}, nil, true, err
	case err == nil && g.kind == "lease":
		j.granted(g, since)
		return reading{}, j, true, nil
	case err == nil && g.kind == "value":
		r.c.flights.deliver(fl, nothing) // before the tag versions of an entry are read
		found, err = r.judge(ctx, []byte(g.text), g.stamps)
		return found, nil, true, err
	}
	return reading{}, nil, false, nil // held, taken, or no text
}
