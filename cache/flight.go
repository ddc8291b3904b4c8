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
	haste    chan struct{} // see hurry

	load     *flight // that of the load, where it is for several keys, or nil
	joinable bool    // guarded by flights.mu
	dropped  bool    // guarded by flights.mu: this process has deleted the key
	next     *flight // guarded by flights.mu: see flights.after
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
	tags     map[string]string // whose stamps they were
	negative bool
	keys     []string // in FetchMany those of the load that has failed
	left     bool     // see nothing
}

// nothing is the outcome of a flight that ends before its load begins: whoever has joined it asks again.
var nothing = outcome{left: true}

// A flightID tells callers apart that expect values of different types, or errors of different loaders: an error of several
// keys' loader may be about any of them.
type flightID struct {
	name string
	kind reflect.Type
	many bool // of FetchMany
}

// flights are the loads under way that a caller may join.
type flights struct {
	mu     sync.Mutex
	byName map[flightID]*flight
}

// join returns the flight to wait for, and whether it is the caller's own to run: by load, where that is for several keys.
func (f *flights) join(id flightID, load *flight) (fl *flight, own bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enter(id, load)
}

// after is join for those for whom the outcome of a flight does not count: they all share the next one, also where it has
// ended before some of them ask.
func (f *flights) after(fl, load *flight) (next *flight, own bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.follow(fl, load)
}

// together calls a function of one's own, which enters and follows flights of several keys with no one in between: of two
// callers that want the same keys, one would have some and the other the rest, and they would share no load of all.
func (f *flights) together(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// follow is after. The caller holds mu.
func (f *flights) follow(fl, load *flight) (next *flight, own bool) {
	if fl.next == nil {
		fl.next, own = f.enter(fl.id, load)
	}
	return fl.next, own
}

// enter is join. The caller holds mu.
func (f *flights) enter(id flightID, load *flight) (fl *flight, own bool) {
	if fl := f.byName[id]; fl != nil {
		return fl, false
	}
	fl = &flight{id: id, done: make(chan struct{}), joinable: true, load: load}
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

// sealAll seals the flights of several jobs with no one in between: see together.
func (f *flights) sealAll(jobs []*job) {
	f.together(func() {
		for _, j := range jobs {
			f.leave(j.fl)
		}
	})
}

// drop makes that the flights of a key take no more callers and store nothing. Who waits for one whose load had begun before
// waits for the next one then; whoever came before the load began has its result all the same.
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

// hurry lets the flight's load begin without a slot: a loader that has one waits for it, and all that have one could wait so.
func (fl *flight) hurry() {
	if fl.load != nil {
		fl = fl.load
	}
	haste := fl.hurried()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	select {
	case <-haste:
	default:
		close(haste)
	}
}

// hurried is closed when the flight hurries.
func (fl *flight) hurried() chan struct{} {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.haste == nil {
		fl.haste = make(chan struct{})
	}
	return fl.haste
}

// ended reports whether the flight has.
func (fl *flight) ended() bool {
	select {
	case <-fl.done:
		return true
	default:
		return false
	}
}

// failed reports whether the load did, which says nothing of the value.
func (o *outcome) failed() bool { return o.err != nil && !o.negative }

// counts reports whether the outcome may be given to a caller that did not begin the flight: its load began after the
// caller came, or it was accepted with stamps of all the caller's tags. What a load returned that began earlier may be about
// an old row, its error too. That there was none in time is about no row: it counts for all, who would otherwise wait as long
// again.
func (o *outcome) counts(arrival uint64, tags []string) bool {
	return o.accepted && bear(o.tags, tags) || o.started > arrival || o.started == 0 && o.failed()
}

// The pauses between two looks at a key that somebody else loads.
const (
	firstPause   = 2 * time.Millisecond
	longestPause = 100 * time.Millisecond
)
