package keyspace

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

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

// count returns how many buckets the next SCAN should look at.
func (p *pace) count() int64 {
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

// due returns how long Redis should be left alone now.
func (p *pace) due() time.Duration {
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
	d := p.due()
	if d < minRest {
		return ctx.Err()
	}
	began := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		p.rested(time.Since(began))
		return nil
	}
}
