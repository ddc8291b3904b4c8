package cache

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// A job is the work of one flight.
type job struct {
	*request
	fl      *flight
	names   names
	token   string // of all its requests for the lease
	useless string
	tags    []string
	lease   string // held by this job, or ""
	taken   time.Time
	stamps  map[string]string
	since   mark // the memory's, from before the lease was taken and the stamps read
	away    bool // Redis
	foreign bool // what is under the key
	waits        // for a lease
	loading
}

// A loading is one run of the loader.
type loading struct {
	started uint64 // see outcome; 0 before
	result  any
	err     error
	cost    time.Duration
}

func (r *request) job(fl *flight, useless string) *job {
	return &job{request: r, fl: fl, names: namesOf(r.name), useless: useless, tags: r.p.o.Tags}
}

// waits are those for one lease.
type waits struct {
	left    time.Duration // of the lease that was seen last
	holders int
}

// enough takes note of a lease that somebody else has, and reports whether so many have had it that the next load is the
// caller's own. A lease is never prolonged: one that has longer to live is another one, and what was loaded under those before it
// was not stored, or its value would have been found.
func (w *waits) enough(g grant) bool {
	if g.wait > w.left {
		w.holders++
	}
	w.left = g.wait
	return w.holders > mostRounds
}

// leasable reports whether there is a lease to ask for.
func (j *job) leasable() bool { return !j.away && !j.foreign && j.names.ok && stampable(j.tags) }

// granted takes note of a lease that was asked for after the mark.
func (j *job) granted(g grant, since mark) {
	j.lease, j.taken, j.stamps, j.since = g.text, g.sent, g.stamps, since
}

// A flightContext ends with the Cache, and has the values of the caller that began the flight.
type flightContext struct {
	context.Context // of the Cache's life, by which package context finds what ends it
	caller          context.Context
}

func (c flightContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.caller.Value(key)
}

// run is a flight: it takes the lease, loads, fills, and tells all that wait.
func (r *request) run(ctx context.Context, fl *flight, f finding) {
	ctx = flightContext{r.c.life, ctx}
	j := f.led
	if j == nil {
		j = r.job(fl, f.useless())
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
		r.c.flights.seal(fl) // nothing will be stored: only who came before the load may have its result
	} // while Redis is away whoever comes later waits too, and they all share the next one
	j.perform(ctx)
}

// finish is deferred by a flight: it gives back a lease that is not used up. Where the goroutine ends by a panic, or by
// runtime.Goexit as t.Fatal does it, it tells all that wait, since nobody else will.
func (j *job) finish(ctx context.Context) {
	failure := recover()
	switch {
	case !j.fl.ended():
		j.c.flights.end(j.fl, outcome{err: panicked(failure), started: j.started})
	case failure != nil:
		j.c.counts.failed() // all have their answer already
	}
	j.c.giveBackAtLast(ctx, j)
}

// growStack gives a new goroutine the stack that a load needs. Otherwise it would be copied, deep in the codec and the
// client, each time that it doubles: a tenth of what a miss costs this process.
//
//go:noinline
func growStack() byte {
	var room [12 << 10]byte
	return room[time.Now().Nanosecond()&1023] // the compiler cannot tell which, so that there is such a frame
}

// acquire takes the lease. ended says that a value was found instead, or that there is no more time.
func (j *job) acquire(ctx context.Context, found reading) (o outcome, ended bool) {
	c := j.c
	end := time.Now().Add(c.lifeOfLease())
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		mark, again := c.memory.mark(), false
		g, err := c.lease(context.WithoutCancel(ctx), j) // whose answer tells what there is to give back
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
		case g.kind == "held", g.kind == "taken" && (j.standing == loaded || j.enough(g)):
			return o, false
		case g.kind == "value":
			other, err := j.judge(ctx, []byte(g.text), g.stamps)
			switch {
			case err != nil:
				j.away = classify(err) != nil
				return o, false
			case other.state == foreign:
				return o, false
			case other.state == fresh && j.standing != loaded:
				return j.found(other, mark), true
			}
			j.useless, again = other.useless(), true
		}
		if time.Now().After(end) {
			return o, false // whoever holds the lease has had time enough: load, and store nothing
		}
		if !again && sleep.For(ctx, min(jittered(pause), max(g.wait, time.Millisecond))) != nil {
			return outcome{err: ErrClosed}, true
		}
	}
}

// longest is how long an entry of the policy lives at most.
func (j *job) longest() time.Duration {
	longest := max(j.p.o.TTL+max(j.p.o.Stale, j.p.o.StaleOnError), j.p.o.SlidingMax, j.p.o.NegativeTTL)
	return longest + time.Duration(float64(longest)*j.c.config.Jitter)
}

// found is the outcome where somebody else has stored a value since the mark.
func (j *job) found(other reading, since mark) outcome {
	if other.entry.Negative != 0 {
		return outcome{err: ErrNotFound, negative: true}
	}
	j.keep(other, since)
	return outcome{value: other.value}
}

// perform loads within the hard timeout, and ends the flight.
func (j *job) perform(ctx context.Context) {
	c := j.c
	begun := time.Now()
	if j.lease != "" {
		begun = j.taken
	}
	ctx, cancel := context.WithDeadline(ctx, begun.Add(c.config.HardTimeout))
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.flights.end(j.fl, outcome{err: c.overdue()}) })()
	fill := &Fill{}
	j.call(ctx, fill)
	if ctx.Err() != nil {
		c.flights.end(j.fl, outcome{err: c.overdue()})
		return
	}
	o := outcome{value: j.result, err: j.err, started: j.started, negative: isNotFound(j.err)}
	if j.store(context.WithoutCancel(ctx), fill, &o, j.cost) {
		j.lease = ""
	}
	c.flights.end(j.fl, o)
}

// overdue is why the context of a load has ended.
func (c *Cache) overdue() error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	return ErrLoadTimeout
}

// call waits for a slot and runs the loader, unless the context ends before. Where the loader ends its goroutine by
// runtime.Goexit, only deferred functions go on after it.
func (j *job) call(ctx context.Context, fill *Fill) {
	c := j.c
	fill.cache, fill.outer = c, FillFrom(ctx)
	slot, ok := j.slot(ctx, fill.outer)
	if !ok {
		return
	}
	fill.runs.Store(true)
	j.started = c.events.Add(1)
	start, returned := time.Now(), false
	var ended func(error)
	defer func() {
		j.cost = time.Since(start)
		if !returned {
			j.err = panicked(recover())
		}
		fill.runs.Store(false)
		if slot {
			<-c.slots
		}
		c.counts.loaded(j.err)
		end(ended, j.err)
	}()
	ctx, ended = begin(context.WithValue(ctx, fillKey{}, fill), c.config.Hooks.Load, j.key)
	j.result, j.err = j.load(ctx)
	returned = true
}

// slot waits for a slot, and reports whether it has taken one. A load that a loader waits for, which has one itself, needs none,
// or loaders could wait for each other. ok is false if the context ended before.
func (j *job) slot(ctx context.Context, outer *Fill) (taken, ok bool) {
	if outer.runsIn(j.c) {
		return false, true
	}
	select {
	case j.c.slots <- struct{}{}:
		return true, true
	default: // seldom, so that a flight seldom makes a channel for it
	}
	var hurried <-chan struct{}
	if j.fl != nil {
		hurried = j.fl.hurried()
	}
	select {
	case j.c.slots <- struct{}{}:
		return true, true
	case <-hurried:
		return false, true
	case <-ctx.Done():
		return false, false
	}
}

// giveBack releases the lease, if it is held: see Cache.giveBack.
func (j *job) giveBack(ctx context.Context) { j.c.giveBack(ctx, j) }

func jittered(d time.Duration) time.Duration {
	return time.Duration((0.5 + rand.Float64()) * float64(d))
}
