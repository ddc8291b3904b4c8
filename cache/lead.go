package cache

import (
	"context"
	"sync/atomic"
	"time"
)

// An expectation says whether the next read is likely to miss: where more than four in five of the latest have.
type expectation struct{ level atomic.Int32 }

const (
	missExpected = 16 // from this level on
	missCertain  = 32 // the highest one
	hitWeighs    = 4  // misses
)

// note takes note of a read. It need not be exact: one that is lost among several at once changes no result.
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

// leadsFirst reports whether to ask for the lease before anything was read. That spares a round trip where the key is
// missing; where it is not, the script answers with the value. It must wait for the answer whatever the caller's context
// does, since a lease that nobody knows of keeps others from loading: so only where the caller would wait as long for a
// read. A sliding value is prolonged by its read, and Redis' time goes with one now and then.
func (r *request) leadsFirst(ctx context.Context) bool {
	b := r.c.redis
	if !r.c.misses.miss() || !b.heeds || r.p.o.Sliding || b.clock.due() || ctx.Err() != nil || !stampable(r.p.o.Tags) {
		return false
	}
	end, limited := ctx.Deadline()
	return !limited || time.Until(end) > b.timeout
}

// lead asks for the lease of a key that is expected to be missing, for a flight that is under way from before: no two of
// this process may wait for each other. led is the flight's job if the lease is taken; the caller must start it.
// Otherwise the flight has ended, with nothing for those that have joined it, and the key is as found.
func (r *request) lead(ctx context.Context, since mark) (found reading, led *job, err error) {
	id, names := r.flightID(), namesOf(r.name)
	if names.ok && !r.c.flights.under(id) { // a flight that is under way may only be joined by who has read: see Options.Stale
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

// ask is lead's command. ended says that its answer is the end of the reading.
func (r *request) ask(ctx context.Context, fl *flight, since mark) (found reading, led *job, ended bool, err error) {
	stays := r.c.stay() // until its load is under way: see request.start
	defer func() {      // also where the client panics
		if led != nil {
			return
		}
		r.c.flights.end(fl, nothing)
		if stays {
			r.c.leave()
		}
	}()
	if !stays {
		return reading{}, nil, false, nil
	}
	j := r.job(fl, "")
	g, err := r.c.lease(context.WithoutCancel(ctx), j)
	switch {
	case classify(err) != nil:
		return reading{}, nil, true, err
	case err == nil && g.kind == "lease":
		j.granted(g, since)
		return reading{}, j, true, nil
	case err == nil && g.kind == "value":
		r.c.flights.end(fl, nothing) // before the stamps of an entry are read
		found, err = r.judge(ctx, []byte(g.text), g.stamps)
		return found, nil, true, err
	}
	return reading{}, nil, false, nil // held, taken, or no text
}
