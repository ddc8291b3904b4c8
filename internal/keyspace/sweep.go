package keyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/sleep"
)

// A SweepResult is the result of a sweep, up to its error if it has one.
type SweepResult struct {
	Progress

	// Position is the place at the sweep's end: see Survived.
	Position Position

	// Patterns are the patterns in the order of first appearance.
	Patterns []PatternResult
}

// Progress is the progress of a sweep.
type Progress struct {
	Scanned  int64 // names that the scans returned, a name that was returned twice counted twice
	Total    int64 // names that there were when the scans began; 0 if Redis does not tell (DBSIZE)
	Unlinked int64 // names that Redis removed, leases included; too few where an answer got lost

	// Again counts the masters that were scanned again, since they failed over, or have slots that
	// moved, during the sweep.
	Again int
}

// A PatternResult is the result of one pattern.
type PatternResult struct {
	Pattern string
	// Matched counts the keys that were found, by themselves or by their lease. A key that several
	// patterns match counts for the first of them.
	Matched int64
	// Err is a *Refusal where the pattern is not a glob, or for the first key that Redis refused to
	// remove. Nil: everything that was found is gone.
	Err error
}

// progressInterval is the time between two calls of a sweep's watch.
const progressInterval = time.Second

// A Sweeper unlinks the keys that match patterns.
type Sweeper struct {
	nodes    *Nodes
	beacons  *Beacons
	unlinker *Unlinker
	budget   *budget

	slotScan   clock // whether CLUSTERSCAN may be tried
	failsOver  bool  // Sentinel provides the address of the master
	watchEvery time.Duration
	patience   time.Duration // how long a sweep waits for a failover
}

// Sweep scans every master once, in parallel, and unlinks names that match any of patterns, with
// their leases. It unlinks a lease alone if its key matches: a reader may be about to fill it. It
// takes at most Options.SweepShare of Redis time, together with other running sweeps and sets.
//
// A sweep finds every key that exists from its beginning to its end, even if slots move to another
// master meanwhile, or a master fails over. It may miss a key that is stored meanwhile, for example
// by a reader that loaded before the change: sweep again when the longest lease has ended. It
// publishes nothing.
//
// Sweep calls watch, if it is not nil, at the beginning and then once per second with the progress,
// from one goroutine at a time, and waits for it.
//
// The error is an *Outage or a *Loss. The caller must then repeat the sweep from the start, which
// is harmless. That includes a lost connection to a single server: the next connection may lead to
// another server, where a cursor means nothing.
func (s *Sweeper) Sweep(ctx context.Context, patterns []string, watch func(Progress)) (SweepResult, error) {
	defer s.budget.busy()()
	run := newSweep(s, patterns, watch)
	if run.isIdle() {
		return run.result, nil
	}
	err := run.writeBeacon(ctx) // the sweep's first
	if err == nil {
		err = run.scanMasters(ctx)
	}
	if err == nil {
		err = run.writeBeacon(ctx)
	}
	run.result.Position = run.unlinked.position
	return run.result, err
}

// A sweep is one Sweep under way.
type sweep struct {
	sweeper *Sweeper
	matcher *Matcher
	watch   func(Progress)

	mu       sync.Mutex   // of the fields below: masters are scanned in parallel
	unlinked unlinkResult // for its own pipelines alone
	result   SweepResult
	watched  time.Time // when watch was last called
}

func newSweep(s *Sweeper, patterns []string, watch func(Progress)) *sweep {
	p := &sweep{sweeper: s, watch: watch, unlinked: unlinkResult{writer: &s.beacons.sweeps}}
	seen := map[string]bool{}
	for _, text := range patterns {
		if !seen[text] {
			seen[text] = true
			p.result.Patterns = append(p.result.Patterns, PatternResult{Pattern: text})
		}
	}
	p.matcher = matcher(p.result.Patterns)
	return p
}

// matcher reads patterns. One that is not a glob is left out, with the reason in its result.
func matcher(patterns []PatternResult) *Matcher {
	texts := make([]string, len(patterns))
	for i := range patterns {
		texts[i] = patterns[i].Pattern
	}
	return NewMatcher(texts, func(i int, err error) { patterns[i].Err = &Refusal{Key: texts[i], Err: err} })
}

// isIdle reports whether there is no pattern to sweep.
func (p *sweep) isIdle() bool {
	return !slices.ContainsFunc(p.result.Patterns, func(r PatternResult) bool { return r.Err == nil })
}

// scanMasters scans all masters.
func (p *sweep) scanMasters(ctx context.Context) error {
	switch {
	case p.sweeper.nodes.cluster != nil:
		return p.cluster(ctx)
	case p.sweeper.failsOver:
		return p.sentinel(ctx)
	}
	return p.scan(ctx, p.sweeper.nodes.client.(*redis.Client).Options(), nil)
}

// sentinel scans the master, and its successor from the start where it fails over meanwhile.
func (p *sweep) sentinel(ctx context.Context) error {
	options := p.sweeper.nodes.client.(*redis.Client).Options()
	for patience := p.sweeper.newPatience(); ; p.again(1) {
		err := p.scan(ctx, options, nil)
		if err == nil {
			return nil
		}
		if err := patience.wait(ctx, err); err != nil {
			return err
		}
	}
}

// writeBeacon writes the sweep's beacon.
func (p *sweep) writeBeacon(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unlinked.send(ctx, p.sweeper.beacons, nil)
}

// unlink removes units that a scan found.
func (p *sweep) unlink(ctx context.Context, units []unit) error {
	t, err := p.sweeper.unlinker.unlink(ctx, &p.sweeper.beacons.sweeps, units)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Unlinked += t.removed
	for _, r := range t.refused {
		if of := &p.result.Patterns[r.index]; of.Err == nil {
			of.Err = r.failure()
		}
	}
	if err == nil && len(t.away) > 0 {
		err = t.away[0].err
	}
	if err != nil {
		return err
	}
	for _, u := range units {
		p.result.Patterns[u.index].Matched++
	}
	return p.unlinked.follow(t.position)
}

// expect records how many names a scan will meet.
func (p *sweep) expect(names int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Total += names
}

// scanned notes names that a scan has met.
func (p *sweep) scanned(names int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Scanned += int64(names)
	if p.watch != nil && time.Since(p.watched) >= p.sweeper.watchEvery {
		p.watch(p.result.Progress)
		p.watched = time.Now()
	}
}

// again records that masters are scanned again.
func (p *sweep) again(masters int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Again += masters
}

// maxRounds bounds how often a slot may move on before a sweep gives up. The caller begins again,
// with the patterns that were requested meanwhile, which would wait otherwise.
const maxRounds = 5

// cluster scans all masters in parallel, and then again, from the start, those that have slots that
// were not seen.
//
// A slot is seen if its master has it at every page of a scan. Each page comes with the master's
// reply about its slots, in one pipeline, so a slot may even leave and return between two pages. A
// slot that is not seen is followed to the masters that have it after the round. Other moves do not
// matter, so slots that move one by one do not keep a sweep going. A failover is the same: all
// slots move, to the replica. With CLUSTERSCAN only the pages of a slot count, and a later round
// scans only slots: see scanSlots.
//
// If a move is undone while its destination is scanned again, keys may be missed: the second sweep
// covers that.
func (p *sweep) cluster(ctx context.Context) error {
	patience := p.sweeper.newPatience()
	at, due, err := p.nextRound(ctx, patience, nil)
	for rounds := 0; err == nil && len(due) > 0; p.again(len(due)) {
		if rounds > 1 { // until the masters agree
			if err := sleep.For(ctx, failoverPause); err != nil {
				return outage(err)
			}
		}
		failed, roundErr := p.round(ctx, at, due)
		if roundErr != nil {
			return roundErr
		}
		if len(failed) == 0 {
			patience.reset()
			rounds++
		}
		if rounds > maxRounds {
			return &Outage{State: StateMoving, Err: fmt.Errorf("slots were still moving after %d rounds of a sweep", maxRounds)}
		}
		var failure error
		for id := range failed {
			due[id].gone, failure = due[id].slots, failed[id]
		}
		if failure != nil { // one wait for all
			if err := patience.wait(ctx, failure); err != nil {
				return err
			}
		}
		at, due, err = p.nextRound(ctx, patience, due)
	}
	return err
}

// nextRound asks until every master answers, and each slot that a round has not seen has one. It
// returns what is due in the next round: everything in the first.
func (p *sweep) nextRound(ctx context.Context, patience *patience, seen map[string]*stay) (*layout, map[string]*stay, error) {
	for {
		l, err := p.sweeper.layout(ctx)
		if err == nil {
			due, unknown := l.unseen(seen)
			if unknown == nil {
				return l, due, nil
			}
			err = p.sweeper.moving(ctx, unknown)
		}
		if err := patience.wait(ctx, err); err != nil {
			return nil, nil, err
		}
	}
}

// round scans the masters that are due, in parallel, and returns those errors that another round
// may fix.
func (p *sweep) round(ctx context.Context, l *layout, due map[string]*stay) (failed map[string]error, err error) {
	masters, err := p.sweeper.nodes.masters(ctx)
	if err != nil {
		return nil, err
	}
	like := masters[0].Options()
	var (
		mu    sync.Mutex
		group sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed = map[string]error{}
	for id, stay := range due {
		group.Go(func() {
			scanErr := p.scan(ctx, l.options(id, like), stay)
			if scanErr == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if mayFailOver(scanErr) {
				failed[id] = scanErr
				return
			}
			if err == nil {
				err = scanErr
			}
			cancel()
		})
	}
	group.Wait()
	return failed, err
}

const (
	// failoverPatience is how long a sweep waits for a master's successor: longer than a Cluster
	// takes to elect one at its default node timeout of 15 s.
	failoverPatience = 30 * time.Second
	failoverPause    = 200 * time.Millisecond
)

// A patience waits for a failover, and not for errors that a failover does not fix.
type patience struct {
	limit time.Duration
	since time.Time // of the first of consecutive errors
}

func (s *Sweeper) newPatience() *patience { return &patience{limit: s.patience} }

// reset records a success.
func (p *patience) reset() { p.since = time.Time{} }

// wait waits a little after an error, or returns it.
func (p *patience) wait(ctx context.Context, err error) error {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	if !mayFailOver(err) || time.Since(p.since) >= p.limit {
		return err
	}
	if err := sleep.For(ctx, failoverPause); err != nil {
		return outage(err)
	}
	return nil
}

// mayFailOver reports whether a scan that ended with err may succeed at a successor of its master.
// The caller must get a Loss immediately.
func mayFailOver(err error) bool {
	o, ok := errors.AsType[*Outage](err)
	if !ok {
		return false
	}
	switch o.State {
	case StateNetwork, StateTimeout, StateLoading, StateReadOnly, StateMasterDown, StateClusterDown, StateMoving, StateNoReplicas:
		return true
	}
	return false
}

// A budget is the share of Redis time that sweeps and sets have together.
type budget struct {
	share float64
	users atomic.Int32 // calls of Sweep, TakeSet and TakeSets that are under way
}

// newPace returns the pace of a sweep, which has the share together with the others that are under
// way.
func (b *budget) newPace() *pace {
	p := newPace(b.share)
	p.users = &b.users
	return p
}

// busy records that a sweep is running, until the caller calls over.
func (b *budget) busy() (over func()) {
	b.users.Add(1)
	return func() { b.users.Add(-1) }
}

const (
	// scanAim is how long one SCAN should take Redis, which serves no other client meanwhile.
	scanAim = 250 * time.Microsecond
	// scanCount is the COUNT of one SCAN without a budget: some 300 microseconds of Redis time, or
	// a millisecond.
	scanCount    = 1000
	scanCountMin = 10
	// scanCountFirst is how many the first SCAN looks at, before its cost is known.
	scanCountFirst = 100
	// maxRest bounds one pause. Otherwise a single slow answer could stop a sweep.
	maxRest = time.Second
	// maxAhead bounds how much a late timer saves later: a few SCANs in a row.
	maxAhead = 2 * time.Millisecond
	// minRest is worth a timer; less is saved up.
	minRest = 200 * time.Microsecond
)

// A pace keeps a sweep within a share of Redis time. It sets the COUNT of one SCAN, and the pause
// between two of them, from the response times alone. So a Redis that is busy with other clients,
// or a slow network, slows the sweep down. It is safe for concurrent use.
type pace struct {
	share float64       // of Redis time; 1 or more: all of it
	users *atomic.Int32 // those that have the share together; nil: this one alone

	mu   sync.Mutex
	n    int     // what the next SCAN looks at
	cost float64 // nanoseconds that one bucket takes; 0: not known yet
	owed time.Duration
}

func newPace(share float64) *pace {
	p := &pace{share: share, n: scanCountFirst}
	if p.unbounded() {
		p.n = scanCount
	}
	return p
}

func (p *pace) unbounded() bool { return p.share >= 1 }

// bucketsDue returns how many buckets the next SCAN should look at.
func (p *pace) bucketsDue() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(p.n)
}

// scanned records how long Redis took for a SCAN of the last count. Disturbances only make a
// measurement longer, so shorter ones get more weight.
func (p *pace) scanned(took time.Duration) {
	if p.unbounded() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sample, weight := float64(max(took, time.Microsecond))/float64(p.n), 1./16
	if sample < p.cost {
		weight = 1. / 4
	}
	if p.cost == 0 {
		weight = 1
	}
	p.cost += (sample - p.cost) * weight
	p.n = min(int(float64(scanAim)/p.cost), 2*p.n, scanCount)
	p.n = max(p.n, scanCountMin)
	p.owe(took)
}

// spent records how long Redis was busy with anything else for the sweep.
func (p *pace) spent(took time.Duration) {
	if p.unbounded() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owe(took)
}

func (p *pace) owe(took time.Duration) {
	share := p.share
	if p.users != nil {
		share /= float64(max(p.users.Load(), 1))
	}
	p.owed += time.Duration(float64(took) * (1 - share) / share)
}

// restDue returns how long Redis should be left alone now.
func (p *pace) restDue() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(p.owed, maxRest)
}

// rested records for how long Redis was left alone. Timers are late, which counts for the next
// time.
func (p *pace) rested(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owed > maxRest {
		p.owed = maxRest
	}
	p.owed = max(p.owed-d, -maxAhead)
}

// rest leaves Redis alone for as long as is due.
func (p *pace) rest(ctx context.Context) error {
	d := p.restDue()
	if d < minRest {
		return ctx.Err()
	}
	began := time.Now()
	err := sleep.For(ctx, d)
	if err == nil {
		p.rested(time.Since(began))
	}
	return err
}
