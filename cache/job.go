package cache

import (
	"context"
	"math/rand/v2"
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

	// send stores a parcel together with those of other jobs. Nil: alone.
	send func(context.Context, parcel) filling
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

// run runs a flight: it takes the lease, loads, fills, and answers all waiting callers.
func (r *request) run(ctx context.Context, fl *flight, f finding) {
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
	if f.led == nil && j.leasable() {
		if value, ended := j.acquire(ctx, f.reading); ended {
			r.c.flights.end(fl, value)
			return
		}
	}
	if j.lease == "" && f.unasked {
		r.c.flights.end(fl, nothing)
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
func (j *job) finish(ctx context.Context) {
	failure := recover()
	switch {
	case !j.fl.ended():
		j.request.c.flights.end(j.fl, outcome{err: j.request.c.loaders.panicked(j.key, failure), started: j.started})
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

// acquire takes the lease. ended reports that a value was found instead, or that no time is left.
func (j *job) acquire(ctx context.Context, found reading) (o outcome, ended bool) {
	c := j.request.c
	end := time.Now().Add(c.leases.life())
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		mark, again := c.memory.mark(), false
		g, err := j.ask(detached(ctx)) // the leases to release depend on the answer
		switch {
		case ctx.Err() != nil:
			if g.kind == "lease" {
				j.granted(g, mark) // for finish
			}
			return outcome{err: ErrClosed}, true
		case err != nil:
			j.away = classify(err) != nil
			return o, false
		case g.kind == "lease":
			j.granted(g, mark)
			return o, false
		case g.kind == "held", g.kind == "taken" && (j.request.standing == loaded || j.enough(g)):
			return o, false
		case g.kind == "value":
			other, err := j.request.judge(ctx, []byte(g.text), g.stamps)
			switch {
			case err != nil:
				j.away = classify(err) != nil
				return o, false
			case other.state == foreign:
				return o, false
			case other.state == fresh && j.request.standing != loaded:
				return j.found(other, mark), true
			}
			j.replaces(other)
			again = true
		}
		if time.Now().After(end) {
			return o, false // the holder of the lease had enough time: load, and store nothing
		}
		if !again && sleep.For(ctx, min(jittered(pause), max(g.wait, time.Millisecond))) != nil {
			return outcome{err: ErrClosed}, true
		}
	}
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
	begun := time.Now()
	if j.lease != "" {
		begun = j.taken
	}
	ctx, cancel := context.WithDeadline(ctx, begun.Add(c.config.HardTimeout))
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.flights.end(j.fl, outcome{err: c.overdue()}) })()
	fill := &Fill{keys: []string{j.key}}
	c.loaders.run(ctx, fill, &j.loading)
	if ctx.Err() != nil {
		c.flights.end(j.fl, outcome{err: c.overdue()})
		return
	}
	o := outcome{value: j.result, err: j.err, started: j.started, negative: isNotFound(j.err)}
	released := j.store(context.WithoutCancel(ctx), fill, &o, j.cost)
	if !released && j.removes() {
		c.giveBack(ctx, j) // before answering callers, who may read again
		released = true
	}
	if released {
		j.lease = ""
	}
	c.flights.end(j.fl, o)
}

// overdue returns the reason why the context of a load has ended.
func (c *Cache) overdue() error {
	if c.run.life.Err() != nil {
		return ErrClosed
	}
	return ErrLoadTimeout
}

// ask asks for the lease: see leaser.takeAll.
func (j *job) ask(ctx context.Context) (grant, error) {
	return j.request.c.leases.take(ctx, &j.claim, j.tags, j.longest())
}

// giveBack releases the leases that jobs hold: see leaser.giveBack. It then removes from L1 the values
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
