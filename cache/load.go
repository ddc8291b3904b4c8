package cache

import (
	"context"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
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
	started uint64
}

func (r *request) job(fl *flight, useless string) *job {
	return &job{request: r, fl: fl, names: namesOf(r.name), useless: useless, tags: r.p.o.Tags}
}

// granted takes note of a lease that was asked for after the mark.
func (j *job) granted(g grant, since mark) {
	j.lease, j.taken, j.stamps, j.since = g.text, g.sent, g.stamps, since
}

// run is a flight: it takes the lease, loads, fills, and tells all that wait.
func (r *request) run(ctx context.Context, fl *flight, f finding) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(r.c.life, cancel)()
	j := f.led
	if j == nil {
		j = r.job(fl, f.useless())
		j.away = f.away
		if tags := r.allTags(&f.entry); stampable(tags) {
			j.tags = tags
		}
		if f.state != foreign && !f.away && j.names.ok && stampable(j.tags) {
			if value, ended := j.acquire(ctx, f.reading); ended {
				r.c.flights.end(fl, value)
				return
			}
		}
	}
	if j.lease == "" && !j.away {
		r.c.flights.seal(fl) // nothing will be stored: only who came before the load may have its result
	}
	j.perform(ctx)
}

// acquire takes the lease. ended says that a value was found instead, or that there is no more time.
func (j *job) acquire(ctx context.Context, found reading) (o outcome, ended bool) {
	c := j.c
	end := time.Now().Add(c.config.Lease)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		mark, again := c.memory.mark(), false
		g, err := c.lease(ctx, j)
		switch {
		case ctx.Err() != nil:
			return outcome{err: ErrClosed}, true
		case err != nil:
			j.away = classify(err) != nil
			return o, false
		case g.kind == "lease":
			j.granted(g, mark)
			return o, false
		case g.kind == "held", g.kind == "taken" && j.standing == loaded:
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
				j.keepIf(other, mark)
				o := outcome{value: other.value}
				if other.entry.Negative != 0 {
					o.err, o.negative = ErrNotFound, true
				}
				return o, true
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

// keepIf is keep for what is not negative.
func (j *job) keepIf(found reading, since mark) {
	if found.entry.Negative == 0 {
		j.keep(found, since)
	}
}

// perform loads within the hard timeout, and ends the flight.
func (j *job) perform(ctx context.Context) {
	c := j.c
	begun := time.Now()
	if j.lease != "" {
		begun = j.taken
	}
	var late atomic.Bool
	ctx, cancel := context.WithDeadline(ctx, begun.Add(c.config.HardTimeout))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		late.Store(true)
		err := ErrLoadTimeout
		if c.life.Err() != nil {
			err = ErrClosed
		}
		c.flights.end(j.fl, outcome{err: err})
	})()
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		j.giveBack(ctx)
		return
	}
	fill := &Fill{}
	j.started = c.events.Add(1)
	start := time.Now()
	value, err := j.call(context.WithValue(ctx, fillKey{}, fill))
	cost := time.Since(start)
	<-c.slots
	c.counts.loaded(err)
	if late.Load() {
		j.giveBack(ctx)
		return
	}
	o := outcome{value: value, err: err, started: j.started, negative: isNotFound(err)}
	stored := j.store(context.WithoutCancel(ctx), fill, &o, cost)
	c.flights.end(j.fl, o)
	if !stored {
		j.giveBack(ctx)
	}
}

// call runs the loader.
func (j *job) call(ctx context.Context) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{p, debug.Stack()}
		}
	}()
	ctx, ended := begin(ctx, j.c.config.Hooks.Load, j.key)
	value, err = j.load(ctx)
	end(ended, err)
	return value, err
}

// giveBack releases the lease, also when its context has ended or the process is about to end.
func (j *job) giveBack(ctx context.Context) {
	if j.lease != "" {
		j.c.release(context.WithoutCancel(ctx), j.names, j.lease)
	}
}

func jittered(d time.Duration) time.Duration {
	return time.Duration((0.5 + rand.Float64()) * float64(d))
}
