package cache

import (
	"context"
	"sync/atomic"
	"time"
)

// An expectation predicts whether the next read misses: it does if more than four in five of the
// latest have missed.
type expectation struct{ level atomic.Int32 }

const (
	missExpected = 16 // from this level on
	missCertain  = 32 // the highest one
	hitWeighs    = 4  // misses
)

// note records a read. It is approximate: losing one of several concurrent updates changes no
// result.
func (e *expectation) note(missed bool) {
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
			if found, led, ended, err = r.ask(ctx, fl, since); ended {
				return found, led, err
			}
		}
	}
	found, err = r.read(ctx)
	return found, nil, err
}

// ask sends the command of lead. ended reports that its answer completes the request.
func (r *request) ask(ctx context.Context, fl *flight, since mark) (found reading, led *job, ended bool, err error) {
	stays := r.c.run.stay() // until its load is under way: see request.start
	defer func() {          // even if the client panics
		if led != nil {
			return
		}
		r.c.flights.end(fl, nothing)
		if stays {
			r.c.run.leave()
		}
	}()
	if !stays {
		return reading{}, nil, false, nil
	}
	j := r.job(fl, reading{})
	g, err := j.ask(detached(ctx))
	switch {
	case classify(err) != nil:
		return reading{}, nil, true, err
	case err == nil && g.kind == "lease":
		j.granted(g, since)
		return reading{}, j, true, nil
	case err == nil && g.kind == "value":
		r.c.flights.end(fl, nothing) // before the tag versions of an entry are read
		found, err = r.judge(ctx, []byte(g.text), g.stamps)
		return found, nil, true, err
	}
	return reading{}, nil, false, nil // held, taken, or no text
}
