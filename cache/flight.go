package cache

import (
	"reflect"
	"sync"
	"time"
)

// A flight is one load of a key that several callers may wait for.
type flight struct {
	id   flightID
	done chan struct{} // closed when the fields below are final

	mu       sync.Mutex
	finished bool
	outcome  outcome

	joinable bool // guarded by flights.mu
	dropped  bool // guarded by flights.mu: this process has deleted the key
}

// An outcome is what a flight ends with.
type outcome struct {
	value any
	err   error
	// started is the number of the event at which the load began, 0 where none was needed: then value was read from
	// Redis.
	started uint64
	// accepted says that the value counts for whoever came before its fill was sent: Redis took it, and the stamps stood.
	accepted bool
	// shared says the same for the reason that Redis is away, which does not count for callers after their own writes.
	shared   bool
	negative bool
}

// A flightID tells callers apart that expect values of different types.
type flightID struct {
	name string
	kind reflect.Type
}

// flights are the loads under way that a caller may join.
type flights struct {
	mu     sync.Mutex
	byName map[flightID]*flight
}

// join returns the flight to wait for, and whether it is the caller's own to run.
func (f *flights) join(id flightID) (fl *flight, own bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.byName[id]; fl != nil {
		return fl, false
	}
	fl = &flight{id: id, done: make(chan struct{}), joinable: true}
	if f.byName == nil {
		f.byName = map[flightID]*flight{}
	}
	f.byName[id] = fl
	return fl, true
}

// under reports whether a flight of the key may be joined.
func (f *flights) under(id flightID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byName[id] != nil
}

// alone makes a flight that nobody can join.
func alone(id flightID) *flight { return &flight{id: id, done: make(chan struct{})} }

// seal ends that callers join, and reports whether the key was deleted by this process meanwhile. Whoever is told to wait
// for the flight has been so before.
func (f *flights) seal(fl *flight) (dropped bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave(fl)
	return fl.dropped
}

// drop makes that the flights of a key take no more callers and count for nobody but who began them.
func (f *flights) drop(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, fl := range f.byName {
		if id.name == name {
			fl.dropped = true
			f.leave(fl)
		}
	}
}

// leave takes a flight from the list. The caller holds mu.
func (f *flights) leave(fl *flight) {
	if fl.joinable {
		fl.joinable = false
		delete(f.byName, fl.id)
	}
}

// end seals a flight and gives the outcome to all that wait. Only the first one counts.
func (f *flights) end(fl *flight, o outcome) {
	f.seal(fl)
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.finished {
		return
	}
	fl.finished, fl.outcome = true, o
	close(fl.done)
}

// counts reports whether the outcome may be given to a caller that did not begin the flight: its load began after the
// caller came, or it was accepted. An error is no old value.
func (o outcome) counts(arrival uint64, shared bool) bool {
	return o.accepted || shared && o.shared || o.started > arrival || o.err != nil && !o.negative
}

// The pauses between two looks at a key that somebody else loads.
const (
	firstPause   = 2 * time.Millisecond
	longestPause = 100 * time.Millisecond
)
