package cache

import (
	"math/rand/v2"
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

	load     *flight // the flight of the load if it is for several keys, or nil
	joinable bool    // guarded by flights.mu
	dropped  bool    // guarded by flights.mu: this process has deleted the key
	next     *flight // guarded by flights.mu: see flights.after
}

// An outcome is the result of a flight.
type outcome struct {
	value any
	err   error
	// started is the event number at the start of the load. It is 0 if no load was needed: value
	// was read from Redis.
	started uint64
	// accepted reports that the value counts for callers that came before its fill was sent: Redis
	// stored it, and the tag versions were current.
	accepted bool
	tags     map[string]string // the tags of these versions
	fresh    time.Duration     // see Result.FreshFor
	negative bool
	keys     []string // in FetchMany those of the load that has failed
	left     bool     // see nothing
}

// nothing is the outcome of a flight that ends before its load begins: callers that have joined it
// ask again.
var nothing = outcome{left: true}

// A flightID tells callers apart that expect values of different types, or errors of different
// loaders: an error of several keys' loader may be about any of them.
type flightID struct {
	name string
	kind reflect.Type
	many bool // of FetchMany
}

// flights are the loads under way that a caller may join.
type flights struct {
	mu     sync.Mutex
	byName map[flightID]*flight
	pauses pauses
}

// pauses are for keys whose load has failed: see Config.LoadPause. Safe for concurrent use.
type pauses struct {
	length time.Duration
	mu     sync.Mutex
	until  map[string]time.Time
}

func (p *pauses) begin(name string) {
	if p.length <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil || len(p.until) > seenMost {
		p.until = map[string]time.Time{}
	}
	p.until[name] = time.Now().Add(time.Duration((0.75 + rand.Float64()/2) * float64(p.length)))
}

func (p *pauses) last(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.until[name])
}

// join returns the flight to wait for, and whether it is the caller's own to run: by load, where
// that is for several keys.
func (f *flights) join(id flightID, load *flight) (fl *flight, own bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enter(id, load)
}

// after is like join, for callers that cannot use the outcome of a flight. They all share the next
// one, even if it ends before some of them ask.
func (f *flights) after(fl, load *flight) (next *flight, own bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.follow(fl, load)
}

// together calls a function that enters and follows flights of several keys, and excludes other
// calls meanwhile. Otherwise two callers of the same keys could each enter some of them, and would
// not share one load of all.
func (f *flights) together(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// follow is like after. The caller holds mu.
func (f *flights) follow(fl, load *flight) (next *flight, own bool) {
	if fl.next == nil {
		fl.next, own = f.enter(fl.id, load)
	}
	return fl.next, own
}

// enter is like join. The caller holds mu.
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

// alone returns a flight that no other caller can join.
func alone(id flightID) *flight { return &flight{id: id, done: make(chan struct{})} }

// seal ends joining, and reports whether this process has deleted the key meanwhile. Callers that
// wait for the flight have joined before.
func (f *flights) seal(fl *flight) (dropped bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave(fl)
	return fl.dropped
}

// sealAll seals the flights of several jobs and excludes other calls meanwhile: see together.
func (f *flights) sealAll(jobs []*job) {
	f.together(func() {
		for _, j := range jobs {
			f.leave(j.fl)
		}
	})
}

// drop makes the flights of a key take no more callers and store nothing. Callers of a load that
// had already begun wait for the next one. Callers that came before the load began still get its
// result.
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
	if o.failed() {
		f.pauses.begin(fl.id.name)
	}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.finished {
		return
	}
	fl.finished, fl.outcome = true, o
	close(fl.done)
}

// hurry lets the flight's load begin without a slot: a loader that has one waits for it, and all
// that have one could wait so.
func (fl *flight) hurry() {
	if fl.load != nil {
		fl.load.hurry()
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

// hurried returns a channel that is closed when the flight hurries.
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

// counts reports whether the outcome can answer a caller that did not begin the flight: its load
// began after the caller came, or it was accepted with versions of all tags of the caller. The
// value or the error of an earlier load may be about an old row. A missing slot is not about a row,
// so it counts for all callers, who would otherwise wait as long again.
func (o *outcome) counts(arrival uint64, tags []string) bool {
	return o.accepted && bear(o.tags, tags) || o.started > arrival || o.started == 0 && o.failed()
}

// The pauses between two checks of a key that another caller loads.
const (
	firstPause   = 2 * time.Millisecond
	longestPause = 100 * time.Millisecond
)
