package cache

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// A job is the work of one flight.
type job struct {
	request *request
	claim
	loading
	tags    []string
	away    bool // Redis
	foreign bool // what is under the key
}

func (r *request) job(fl *flight, found reading) *job {
	j := &job{request: r, tags: r.p.o.Tags, claim: claim{names: namesOf(r.name)}, loading: loading{key: r.key, load: r.load, fl: fl}}
	j.replaces(found)
	return j
}

// leasable reports whether there is a lease to ask for.
func (j *job) leasable() bool { return !j.away && !j.foreign && j.names.ok && stampable(j.tags) }

// A flightContext ends with the Cache, and has the values of the caller that began the flight.
type flightContext struct {
	context.Context // of the life of the Cache; package context finds its cause
	caller          context.Context
}

func (c flightContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.caller.Value(key)
}

// runFlight runs a flight: it takes the lease, loads, fills, and answers all waiting callers.
func (r *request) runFlight(ctx context.Context, fl *flight, f finding) {
	ctx = flightContext{r.c.run.life, ctx}
	j := f.led
	if j == nil {
		j = r.job(fl, f.reading)
		j.away, j.foreign = f.away, f.state == foreign
		if tags := r.allTags(&f.entry); stampable(tags) {
			j.tags = tags
		}
	}
	defer j.finish(ctx)
	if f.led == nil && j.leasable() && j.acquire(ctx) {
		return
	}
	if j.lease == "" && f.unasked {
		r.c.flights.deliver(fl, nothing)
		return
	}
	if j.lease == "" && !j.away {
		// nothing will be stored: only who came before the load may have its result
		r.c.flights.seal(fl)
	} // while Redis is unavailable, later callers wait too and share the next flight
	j.perform(ctx)
}

// finish releases an unused lease. A flight defers it: if the goroutine ends by a panic, or by
// runtime.Goexit as in t.Fatal, it answers all waiting callers.
func (j *job) finish(ctx context.Context) { j.conclude(ctx, recover()) }

// conclude implements finish for what recover has returned.
func (j *job) conclude(ctx context.Context, failure any) {
	switch {
	case !j.fl.ended():
		j.request.c.flights.deliver(j.fl, outcome{err: j.request.c.loaders.panicked(j.key, failure), started: j.started})
	case failure != nil:
		j.request.c.counts.failed()
		_ = j.request.c.loaders.panicked(j.key, failure) // all have their answer already
	}
	j.request.c.leases.giveBackAtLast(ctx, held(j)...)
}

// growStack grows the stack of a new goroutine to the size that a load needs. Otherwise the runtime
// would copy the stack each time that it doubles, deep in the codec and the client, which takes a
// tenth of the time of a miss.
//
//go:noinline
func growStack() byte {
	var room [12 << 10]byte
	// The index is unknown to the compiler, so the frame is real.
	return room[time.Now().Nanosecond()&1023]
}

// acquire takes the lease. It reports whether that has ended the flight: a value was found instead,
// or no time is left.
func (j *job) acquire(ctx context.Context) (ended bool) {
	c := j.request.c
	end := time.Now().Add(c.leases.life())
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		mark := c.memory.mark()
		g, err := j.takeLease(detached(ctx)) // the leases to release depend on the answer
		g.err = err
		switch {
		case ctx.Err() != nil:
			if g.kind == "lease" {
				j.granted(g, mark) // for finish
			}
			c.flights.deliver(j.fl, outcome{err: ErrClosed})
			return true
		case !j.answered(ctx, g, mark):
			return j.fl.ended()
		case time.Now().After(end):
			return false // the holder of the lease had enough time: load, and store nothing
		case g.kind == "taken" && sleep.For(ctx, min(jittered(pause), max(g.wait, time.Millisecond))) != nil:
			c.flights.deliver(j.fl, outcome{err: ErrClosed})
			return true
		}
	}
}

// answered evaluates the answer to a request for the lease that was sent after the mark. It ends the
// flight if others have stored a value. waits reports that the job has to ask again; otherwise it
// loads, with or without a lease.
func (j *job) answered(ctx context.Context, g grant, since mark) (waits bool) {
	usable := j.request.constraint != loaded // the values of others
	switch g.kind {
	case "lease":
		j.granted(g, since)
	case "taken":
		return usable && !j.enough(g)
	case "value":
		switch other, err := j.request.judge(ctx, []byte(g.text), g.stamps); {
		case err != nil:
			j.away = classify(err) != nil
		case other.state == foreign:
		case other.state == fresh && usable:
			j.request.c.flights.deliver(j.fl, j.found(other, since))
		default:
			j.replaces(other)
			return true
		}
	default: // held, refused or not answered: loaded and not stored
		j.away = classify(g.err) != nil
	}
	return false
}

// longest returns how long an entry of the policy lives at most.
func (j *job) longest() time.Duration {
	longest := max(j.request.p.o.TTL+max(j.request.p.o.Stale, j.request.p.o.StaleOnError), j.request.p.o.SlidingMax, j.request.p.o.NegativeTTL)
	return longest + time.Duration(float64(longest)*j.request.p.jitter(j.request.c.config))
}

// found returns the outcome if another caller has stored a value since the mark.
func (j *job) found(other reading, since mark) outcome {
	if other.entry.Negative != 0 {
		return outcome{err: ErrNotFound, negative: true}
	}
	j.request.keep(other, since)
	return outcome{value: other.value, fresh: other.life}
}

// perform loads within the hard timeout, and ends the flight.
func (j *job) perform(ctx context.Context) {
	c := j.request.c
	fill, o, ok := j.loadInTime(ctx, func() {})
	if !ok {
		return
	}
	if j.lease != "" {
		ctx = context.WithoutCancel(ctx)
		released, err := j.fillWith(ctx, fill, &o)
		if err != nil {
			c.counts.failed()
		}
		if !released && j.removes() {
			c.giveBack(ctx, j) // before answering callers, who may read again
			released = true
		}
		if released {
			j.lease = ""
		}
	}
	c.flights.deliver(j.fl, o)
}

// loadInTime loads. After the hard timeout, it ends the flight and calls late in another goroutine.
// It then reports false when the loader returns.
func (j *job) loadInTime(ctx context.Context, late func()) (fill *Fill, o outcome, ok bool) {
	c := j.request.c
	begun := time.Now()
	if j.lease != "" {
		begun = j.taken
	}
	ctx, cancel := context.WithDeadline(ctx, begun.Add(c.config.HardTimeout))
	defer cancel()
	end := func() { c.flights.deliver(j.fl, outcome{err: c.overdue()}) }
	stop := context.AfterFunc(ctx, func() { end(); late() })
	defer stop()
	fill = &Fill{keys: []string{j.key}}
	c.loaders.callLoader(ctx, fill, &j.loading)
	inTime, stopped := ctx.Err() == nil, stop()
	if inTime && stopped {
		return fill, outcome{value: j.result, err: j.err, started: j.started, negative: isNotFound(j.err)}, true
	}
	if end(); stopped { // the loader noticed it first
		late()
	}
	return nil, o, false
}

// overdue returns the reason why the context of a load has ended.
func (c *Cache) overdue() error {
	if c.run.life.Err() != nil {
		return ErrClosed
	}
	return ErrLoadTimeout
}

// takeLease asks for the lease: see leaseClient.takeAll.
func (j *job) takeLease(ctx context.Context) (grant, error) {
	return j.request.c.leases.take(ctx, &j.claim, j.tags, j.longest())
}

// giveBack releases the leases that jobs hold: see leaseClient.giveBack. It then removes from L1 the values
// that it has removed from Redis. In the other order, a reader could copy them to L1 meanwhile.
func (c *Cache) giveBack(ctx context.Context, jobs ...*job) {
	claims := held(jobs...)
	c.leases.giveBack(ctx, claims...)
	var removed []string
	for _, claim := range claims {
		if claim.removes() {
			removed = append(removed, claim.names.value)
		}
	}
	if len(removed) > 0 {
		c.memory.evictOwn(removed)
	}
}

// held returns the claims of those jobs that hold a lease.
func held(jobs ...*job) (claims []*claim) {
	for _, j := range jobs {
		if j.lease != "" {
			claims = append(claims, &j.claim)
		}
	}
	return claims
}

func jittered(d time.Duration) time.Duration {
	return time.Duration((0.5 + rand.Float64()) * float64(d))
}

// loaders run at most as many loaders in parallel as there are slots. A loader that another one
// waits for does not need a slot.
type loaders struct {
	slots  chan struct{}
	counts *counts
	hook   func(ctx context.Context, key string) (context.Context, func(error)) // Hooks.Load
	logger *slog.Logger
	panics complaints

	// events orders loads and callers. Each load takes the next number, and a caller remembers the
	// latest number at its arrival.
	events atomic.Uint64
}

// A loading is one run of the loader.
type loading struct {
	key  string // for the hook
	load func(context.Context) (any, error)
	fl   *flight // which the load is for, or nil

	started uint64 // see outcome; 0 before
	result  any
	err     error
	cost    time.Duration
}

// callLoader waits for a slot and runs a loader, unless the context ends before. If the loader ends
// its goroutine with runtime.Goexit, only deferred functions run after it.
func (l *loaders) callLoader(ctx context.Context, fill *Fill, r *loading) {
	fill.loaders, fill.outer = l, FillFrom(ctx)
	slot, ok := l.slot(ctx, fill.outer, r.fl)
	if !ok {
		return
	}
	fill.runs.Store(true)
	r.started = l.events.Add(1)
	start, returned := time.Now(), false
	var ended func(error)
	defer func() {
		r.cost = time.Since(start)
		if !returned {
			r.err = l.panicked(r.key, recover())
		}
		fill.runs.Store(false)
		if slot {
			<-l.slots
		}
		l.counts.loaded(r.err)
		endHook(ended, r.err)
	}()
	ctx, ended = beginHook(context.WithValue(ctx, fillKey{}, fill), l.hook, r.key)
	r.result, r.err = r.load(ctx)
	returned = true
}

// slot waits for a slot, and reports whether it has taken one. A load that a loader waits for,
// which has one itself, needs none, or loaders could wait for each other. ok is false if the
// context ended before.
func (l *loaders) slot(ctx context.Context, outer *Fill, fl *flight) (taken, ok bool) {
	if outer.runsIn(l) {
		return false, true
	}
	select {
	case l.slots <- struct{}{}:
		return true, true
	default: // rare, so few flights create a channel for it
	}
	var hurried <-chan struct{}
	if fl != nil {
		hurried = fl.hurried()
	}
	select {
	case l.slots <- struct{}{}:
		return true, true
	case <-hurried:
		return false, true
	case <-ctx.Done():
		return false, false
	}
}

// A parcel is the arguments of a fill.
type parcel struct {
	claim *claim
	entry entry
	text  []byte
	life  time.Duration
}

// pack makes the parcel of an outcome. An empty text means that nothing may be stored.
func (j *job) pack(ctx context.Context, fill *Fill, o *outcome) (p parcel, err error) {
	p.claim, j.superseded = &j.claim, o.err == nil || o.negative
	p.entry, p.life = j.entry(fill, o)
	if p.life <= 0 {
		return parcel{}, nil
	}
	if stamped, err := j.stampedBy(ctx, fill, &p.entry); !stamped {
		return parcel{}, err
	}
	if p.text, err = j.storedForm(&p.entry, o); err != nil {
		return parcel{}, err
	}
	// Callers that come from now on have to ask Redis.
	if j.request.c.flights.seal(j.fl) || j.request.c.memory.doubted(j.since) {
		return parcel{}, nil
	}
	return p, nil
}

// fillWith fills Redis and the memory with an outcome, under a lease and where that is allowed, and
// sets whether it was accepted. stored reports whether the lease is used up.
func (j *job) fillWith(ctx context.Context, fill *Fill, o *outcome) (stored bool, err error) {
	p, err := j.pack(ctx, fill, o)
	if err != nil || p.text == nil {
		return false, err
	}
	f := j.request.c.leases.fill(ctx, []parcel{p})[0]
	if f.err != nil {
		return false, f.err
	}
	j.filled(p, f, o)
	return f.accepted, nil
}

// filled records the answer of Redis to a parcel.
func (j *job) filled(p parcel, f filling, o *outcome) {
	j.request.c.counts.filled(f.accepted)
	o.tags = p.entry.Tags
	if o.accepted = f.accepted && f.same; !o.accepted || o.negative {
		return
	}
	until := time.Duration(p.entry.Expiry-j.request.c.redis.clock.now()) * time.Millisecond
	if p.entry.Idle > 0 {
		until = min(until, p.life/4)
	}
	o.fresh = until
	j.request.keep(reading{value: o.value, entry: p.entry, life: until}, j.since)
}

// entry returns the entry to store, without its value, and its life. A life of zero means that
// nothing is stored.
func (j *job) entry(fill *Fill, o *outcome) (e entry, life time.Duration) {
	fill.mu.Lock()
	defer fill.mu.Unlock()
	opt := j.request.p.o
	if j.request.c.config.Plain { // the defaults have no room; what was asked for was refused
		opt.Stale, opt.NegativeTTL = 0, 0
	}
	ttl, jitter := opt.TTL, j.request.p.jitter(j.request.c.config)*(2*rand.Float64()-1)
	if fill.ttl > 0 && !o.negative { // the value itself ends then, as a token does
		ttl, jitter, opt.Stale, opt.StaleOnError = fill.ttl, -math.Abs(jitter), 0, 0
	}
	if o.negative {
		ttl, opt.Stale, opt.StaleOnError, opt.Sliding, e.Negative = opt.NegativeTTL, 0, 0, false, 1
	}
	if fill.skip || ttl <= 0 || o.err != nil && !o.negative {
		return e, 0
	}
	ttl = max(time.Duration(float64(ttl)*(1+jitter)), time.Millisecond)
	now := j.request.c.redis.clock.now()
	e.Birth, e.Codec, e.Cost = timeOf(j.lease), j.request.c.config.Codec.Name(), j.cost.Milliseconds()
	e.Expiry = now + ttl.Milliseconds()
	life = ttl + max(opt.Stale, opt.StaleOnError)
	if opt.Sliding {
		longest := time.Duration(float64(opt.SlidingMax) * (1 - j.request.p.jitter(j.request.c.config)*rand.Float64()))
		e.Expiry, e.Idle = now+longest.Milliseconds(), ttl.Milliseconds()
		return e, min(ttl, longest)
	}
	if opt.Stale > 0 {
		e.Stale = e.Expiry + opt.Stale.Milliseconds()
	}
	if opt.StaleOnError > 0 {
		e.OnError = e.Expiry + opt.StaleOnError.Milliseconds()
	}
	return e, life
}

// stampedBy adds tag versions to the entry, for the tags of the policy and of the loader. It
// returns false if one has a tombstone, or if it is unknown whether one has changed since the load
// began. It returns the error if Redis does not give the versions.
func (j *job) stampedBy(ctx context.Context, fill *Fill, e *entry) (bool, error) {
	fill.mu.Lock()
	late := slices.DeleteFunc(slices.Clone(fill.tags), func(tag string) bool { return j.stamps[tag] != "" })
	wanted := append(slices.Clone(fill.tags), j.request.p.o.Tags...)
	ttl := max(fill.ttl, j.request.p.o.TTL)
	fill.mu.Unlock()
	if len(wanted) == 0 {
		return true, nil
	}
	if j.request.c.config.Plain || !stampable(late) {
		return false, nil // a bare value has no room for tag versions
	}
	longest := max(ttl, j.request.p.o.SlidingMax) + j.request.p.o.Stale + j.request.p.o.StaleOnError
	j.readLate(ctx, fill, late, longest+longest/4)
	e.Tags = make(map[string]string, len(wanted))
	for _, tag := range wanted {
		stamp, early := j.stamps[tag]
		if !early {
			stamp = fill.late[tag]
		}
		if e.Tags[tag] = stamp; stamp == "" {
			return false, fill.unread
		}
	}
	return true, nil
}

// readLate reads the versions of tags that only the loader names, once for all keys of its load.
func (j *job) readLate(ctx context.Context, fill *Fill, tags []string, life time.Duration) {
	tags = slices.DeleteFunc(tags, func(tag string) bool { _, ok := fill.late[tag]; return ok })
	if len(tags) == 0 {
		return
	}
	stamps, err := j.request.c.versions.make(ctx, tags, life)
	j.request.c.redis.writes.recordReply(false, err)
	usable := err == nil && j.request.c.seen.saw(stamps, j.started, j.request.c.loaders.events.Load())
	if fill.late == nil {
		fill.late = make(map[string]string, len(tags))
	}
	fill.unread = err
	for _, tag := range tags {
		if fill.late[tag] = ""; usable {
			fill.late[tag] = stamps[tag]
		}
	}
}

// storedForm returns the entry in its stored form.
func (j *job) storedForm(e *entry, o *outcome) ([]byte, error) {
	config := &j.request.c.config
	if config.Plain {
		return marshal(config.Codec, o.value)
	}
	e.Value = []byte("null")
	if !o.negative {
		if err := e.encode(config.Codec, config.CompressAbove, config.RawValues, o.value); err != nil {
			return nil, err
		}
	}
	return e.appendTo(make([]byte, 0, len(e.Value)+96)), nil
}
