package cache

import (
	"context"
	"slices"
)

// A want is a key of a group whose value must be loaded.
type want struct {
	*request
	found reading
	away  bool    // Redis
	fl    *flight // to wait for
	own   bool    // the flight: the group's to load
	known bool    // what the key's value is, or that it has none
}

// job returns what the flight has to do.
func (w *want) job(fl *flight) *job {
	j := w.request.job(fl, w.found)
	j.away, j.foreign = w.away, w.found.state == foreign
	return j
}

// flightID returns the ID of the flights that it can join.
func (w *want) flightID() flightID { return flightID{name: w.name, kind: w.kind, many: true} }

// refresh loads new values in the background, except those that another caller in this process
// loads. No caller waits for them. A value without a lease could not be stored, and would be loaded
// again for each call.
func (b *group) refresh(ctx context.Context, wants []*want) {
	l := b.newLoad()
	l.unasked = true
	for _, w := range wants {
		if b.c.flights.under(w.request.flightID()) || b.c.flights.pauses.last(w.name) {
			continue // Fetch does, or a load has failed
		}
		if fl, own := b.c.flights.join(w.flightID(), l.fl); own {
			l.jobs = append(l.jobs, w.job(fl))
		}
	}
	l.start(ctx)
}

// fill loads values, and waits for those that others load.
func (b *group) fill(ctx context.Context, wants []*want, values map[string]any) (err error) {
	b.wanted = make(map[string]bool, len(wants))
	for _, w := range wants {
		b.wanted[w.key] = true
	}
	if err := FillFrom(ctx).refuse(&b.c.loaders, func(key string) bool { return b.wanted[key] }); err != nil {
		return err
	}
	for round := 0; len(wants) > 0 && err == nil; round++ {
		l := b.newLoad()
		var mine, theirs []*want
		b.c.flights.together(func() {
			for _, w := range wants {
				b.enter(w, l, round)
			}
		})
		for _, w := range wants {
			if w.own {
				mine = append(mine, w)
				l.jobs = append(l.jobs, w.job(w.fl))
			} else {
				theirs = append(theirs, w)
			}
		}
		l.start(ctx)
		// an error of these is of this call, so they come first
		wants, err = b.await(ctx, append(mine, theirs...), values)
	}
	return err
}

// enter finds the flight to wait for, which is of the load if it is the group's own. The caller
// holds the flights together.
func (b *group) enter(w *want, l *manyLoad, round int) {
	switch id := w.flightID(); {
	case round >= mostRounds, w.found.state == foreign, w.standing == loaded:
		w.fl, w.own = alone(id), true
	case w.fl != nil: // without a usable result
		w.fl, w.own = b.c.flights.follow(w.fl, l.fl)
	default:
		w.fl, w.own = b.c.flights.enter(id, l.fl)
	}
}

// await waits for the flights, and collects the known values. It returns the wants whose flights had
// no usable result, and the first error.
func (b *group) await(ctx context.Context, wants []*want, values map[string]any) (again []*want, err error) {
	if FillFrom(ctx).runsIn(&b.c.loaders) {
		for _, w := range wants {
			w.fl.hurry()
		}
	}
	for _, w := range wants {
		select {
		case <-w.fl.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if !w.fl.ended() {
			continue
		}
		switch o := &w.fl.outcome; {
		case o.left, !w.own && !(o.counts(b.arrival, w.p.o.Tags) && b.shares(o)):
			again = append(again, w)
		case o.err != nil && !o.negative:
			if err == nil {
				err = o.err
			}
		default:
			if w.known = true; !o.negative {
				values[w.key] = o.value
			}
		}
	}
	return again, err
}

// shares reports whether the group can use the outcome of another caller's load. A failed load or a
// timeout may be about any of its keys, so it counts if the group has all of them.
func (b *group) shares(o *outcome) bool {
	return !o.failed() || !slices.ContainsFunc(o.keys, func(key string) bool { return !b.wanted[key] })
}
