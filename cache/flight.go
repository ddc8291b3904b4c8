package cache

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A flight is one load of a key that several callers may wait for.
type flight struct {
	id   flightID
	done chan struct{} // closed when the fields below are final

	mu       sync.Mutex
	finished bool
	outcome  outcome
	haste    chan struct{} // see hurry

	load    *flight // the flight of the load if it is for several keys, or nil
	dropped bool    // guarded by flights.mu: this process has deleted the key
	next    *flight // guarded by flights.mu: see flights.follow
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

func (p *pauses) pauseLoads(name string) {
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

// together calls a function that enters and follows flights of several keys, and excludes other
// calls meanwhile. Otherwise two callers of the same keys could each enter some of them, and would
// not share one load of all.
func (f *flights) together(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// follow is like enter, for callers that cannot use the outcome of a flight. They all share the next
// one, even if it ends before some of them ask. The caller holds mu.
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
	fl = &flight{id: id, done: make(chan struct{}), load: load}
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
	if f.byName[fl.id] == fl {
		delete(f.byName, fl.id)
	}
}

// deliver seals a flight and gives the outcome to all that wait. Only the first one counts.
func (f *flights) deliver(fl *flight, o outcome) {
	f.seal(fl)
	if o.failed() {
		f.pauses.pauseLoads(fl.id.name)
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

// mostGlobs is how many patterns may arrive during a read whose value is kept. put matches each
// with the key and with each of its tags, while messages wait for the mutex: 65,000 patterns take
// 0.8 ms or more.
const mostGlobs = 4 * protocol.MaxEntries

// logLength is how many evictions are kept. A value that was requested more than that many
// evictions ago is not stored in L1. A worker with a backlog publishes 100,000 keys per second, so
// these are two thirds of a second, in 1 MiB.
const logLength = 65_536

// An evictionLog remembers the latest evictions. next and globs may be read at any time, the rest
// is the caller's to guard.
type evictionLog struct {
	next  atomic.Uint64 // the number of the next eviction
	globs atomic.Uint64 // how many of all were patterns
	seed  maphash.Seed
	ring  []eviction
}

// An eviction is a key's hash, or a pattern.
type eviction struct {
	hash uint64
	glob *protocol.Glob
}

func newEvictionLog() evictionLog {
	return evictionLog{seed: maphash.MakeSeed(), ring: make([]eviction, logLength)}
}

func (l *evictionLog) addKey(name string) {
	l.logEviction(eviction{hash: maphash.String(l.seed, name)})
}

func (l *evictionLog) addGlob(glob protocol.Glob) {
	l.globs.Add(1)
	l.logEviction(eviction{glob: &glob})
}

func (l *evictionLog) logEviction(e eviction) {
	l.ring[l.next.Load()%logLength] = e
	l.next.Add(1)
}

// overrun reports whether the log no longer reaches back to a mark, or has more than mostGlobs
// since.
func (l *evictionLog) overrun(since mark) bool {
	return l.next.Load()-since.at > logLength || l.globs.Load()-since.globs > mostGlobs
}

// meant reports whether an eviction since number at meant name or one of tags: see hit.
func (l *evictionLog) meant(at uint64, name string, tags []string) bool {
	return l.hit(at, name) || slices.ContainsFunc(tags, func(tag string) bool { return l.hit(at, protocol.StampKey(tag)) })
}

// hit reports whether an eviction since number at meant name (or, with probability 2^-64, another
// key). The log must reach back to at.
func (l *evictionLog) hit(at uint64, name string) bool {
	next := l.next.Load()
	if next == at {
		return false
	}
	hash := maphash.String(l.seed, name)
	for ; at < next; at++ {
		e := l.ring[at%logLength]
		if e.glob != nil && e.glob.Match(name) || e.glob == nil && e.hash == hash {
			return true
		}
	}
	return false
}

// Turns limit the commands in flight to the connections of the client's pool. In a burst, the wait
// of a command is then not part of its timeout, which would count as a failure of Redis. Commands in
// flight end within the timeout, so waiting commands also notice that Redis does not answer. Clients
// of a Cluster have no turns: their pools are one per node, and a node that does not answer would
// use up the turns of the others. Safe for concurrent use.
type turns struct {
	free chan struct{} // nil: nothing waits
	told complaints
}

// mostTurns is for how many timeouts a command waits for its turn.
const mostTurns = 20

// waiterKey is the key of the context that ends the wait of a command for its turn, if that is not
// the command's own.
type waiterKey struct{}

// detached returns a context that does not end a command that was sent. ctx ends its wait before.
func detached(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), waiterKey{}, ctx)
}

// take waits for a turn. held reports that the caller must give it back. After Close nothing waits.
// The error is the context's, or a fault that names the pool.
func (t *turns) take(ctx context.Context, b *backend) (held bool, waited time.Duration, err error) {
	if t.free == nil {
		return false, 0, nil
	}
	select {
	case t.free <- struct{}{}:
		return true, 0, nil
	default:
	}
	if waiter, ok := ctx.Value(waiterKey{}).(context.Context); ok {
		ctx = waiter
	}
	var closed <-chan struct{}
	if b.stalls.life != nil {
		closed = b.stalls.life.Done()
	}
	began := time.Now()
	timer := time.NewTimer(mostTurns * b.timeout)
	defer timer.Stop()
	select {
	case t.free <- struct{}{}:
		return true, time.Since(began), nil
	case <-closed:
		return false, 0, nil
	case <-ctx.Done():
		return false, 0, ctx.Err()
	case <-timer.C:
	}
	select {
	case t.free <- struct{}{}: // this process may not have run
		return true, time.Since(began), nil
	default:
		waited = time.Since(began)
		t.tell(b, waited)
		return false, 0, fmt.Errorf("%w: other commands used all %d connections of the client's pool for %v", ErrRedisTimeout, cap(t.free), waited)
	}
}

// answered logs that a command, which was answered then, had waited for longer than one may take.
func (t *turns) answered(b *backend, began time.Time, waited time.Duration) {
	if waited > b.timeout && waited-b.stalls.stalled(began.Add(-waited), began) > b.timeout {
		t.tell(b, waited)
	}
}

// tell logs at most once per minute that commands wait.
func (t *turns) tell(b *backend, waited time.Duration) {
	if t.told.due() {
		b.news.queue(func() {
			b.logger.LogAttrs(context.Background(), slog.LevelWarn, "commands wait for the connections of the client's pool",
				slog.Int("pool_size", cap(t.free)), slog.Duration("waited", waited), slog.String("cure", "raise PoolSize of Config.Redis, or make fewer calls at once"))
		})
	}
}

const (
	stallStep  = 10 * time.Millisecond
	leastStall = 10 * time.Millisecond // shorter ones are not recorded
)

// errStalled is why a command timed out without any evidence against Redis.
var errStalled = errors.New("this process did not run")

// A stallWatch records when this process did not run: without a CPU, stopped, or during garbage
// collection. It watches while commands are in flight. Safe for concurrent use.
type stallWatch struct {
	launch func(func()) bool // nil: nothing is recorded
	life   context.Context
	keep   time.Duration // no command lasts longer while this process runs

	flying atomic.Int64 // commands
	runs   atomic.Bool

	mu     sync.Mutex
	last   time.Time // the latest tick
	stalls []stall   // oldest first
}

type stall struct{ from, to time.Time }

// commandBegan is called before each command.
func (w *stallWatch) commandBegan(now time.Time) {
	if w.launch == nil {
		return
	}
	w.flying.Add(1)
	if !w.runs.Load() && !w.runs.Swap(true) {
		w.tick(now, false)
		w.launch(w.watch) // after Close no command needs it
	}
}

// commandEnded is called after each command.
func (w *stallWatch) commandEnded() {
	if w.launch != nil {
		w.flying.Add(-1)
	}
}

// watch ticks until no command is in flight.
func (w *stallWatch) watch() {
	ticks := time.Tick(stallStep)
	for {
		select {
		case <-w.life.Done():
			return
		case <-ticks:
		}
		w.tick(time.Now(), true)
		if w.flying.Load() > 0 {
			continue
		}
		w.runs.Store(false)
		if w.flying.Load() == 0 || w.runs.Swap(true) {
			return
		}
	}
}

// tick records the stall since the last tick, if it watched since then.
func (w *stallWatch) tick(now time.Time, watched bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.current(now); watched && s.to.Sub(s.from) >= leastStall {
		w.stalls = slices.DeleteFunc(w.stalls, func(old stall) bool { return s.from.Sub(old.to) > w.keep })
		w.stalls = append(w.stalls, s)
	}
	w.last = now
}

// current returns the stall that lasts until now.
func (w *stallWatch) current(now time.Time) stall { return stall{w.last.Add(stallStep), now} }

// stalled returns for how long, between two moments, the process did not run.
func (w *stallWatch) stalled(from, until time.Time) (total time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	overlap := func(s stall) {
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(until) {
			s.to = until
		}
		total += max(s.to.Sub(s.from), 0)
	}
	for _, s := range w.stalls {
		overlap(s)
	}
	// This goroutine may run before watch does.
	if s := w.current(time.Now()); w.runs.Load() && s.to.Sub(s.from) >= leastStall {
		overlap(s)
	}
	return total
}
