package worker

import (
	"math/rand/v2"
	"time"
)

const (
	shortestWait = 5 * time.Millisecond // of polling, unless pages are full
	gatherRows   = 8                    // that a batch should find at a light load
)

// A pace says when the loop polls next. A batch costs MySQL more than a commit does, whether it carries one row or ten,
// so waits grow until each finds some rows, up to the idle interval: what arrives at a light load is gathered and what
// arrives at a heavy one hardly waits. Full pages go on at once. A hint starts a batch at once, unless the one before
// began less than the wake interval ago. Owned by the loop.
type pace struct {
	idle   time.Duration // the longest wait
	apart  time.Duration // the shortest time between two batches for hints
	spread float64       // waits are longer by that share at most, so that workers do not poll in step

	wait    time.Duration // the last one
	began   time.Time     // the step under way, or the last one
	carried time.Time     // when the last batch began
	due     time.Time     // the next step
	hinted  bool          // that one is made for a hint
}

func newPace(cfg Config) pace {
	return pace{idle: cfg.IdleInterval, apart: cfg.WakeInterval, spread: 0.1, wait: cfg.IdleInterval}
}

// begin notes that a step begins.
func (p *pace) begin(now time.Time) { p.began = now }

// next is the wait after a step that has done r. It counts from when the step began, since what was committed after
// that has waited since then.
func (p *pace) next(now time.Time, r Result) time.Duration {
	shortest := min(shortestWait, p.idle)
	hinted := p.hinted
	p.hinted = false
	if hinted || r.Claimed > 0 {
		p.carried = p.began
	}
	switch {
	case r.Full:
		p.wait, p.due = shortest, now
		return 0
	case hinted || r.Claimed == 0: // while hints come polling only finds what came without one
		p.wait *= 2
	default: // half of the way to the wait that would have found as many as it should
		p.wait = (p.wait + min(gatherRows*p.wait/time.Duration(r.Claimed), 2*p.wait)) / 2
	}
	p.wait = min(max(p.wait, shortest), p.idle)
	left := max(p.wait-now.Sub(p.began), shortest)
	left += time.Duration(p.spread * rand.Float64() * float64(left))
	p.due = now.Add(left)
	return left
}

// hint is the wait for the step that a hint asks for, 0 if it may begin at once. It never puts a step off.
func (p *pace) hint(now time.Time) time.Duration {
	p.hinted = true
	earliest := p.carried.Add(p.apart)
	if p.due.Before(earliest) {
		earliest = p.due
	}
	return max(earliest.Sub(now), 0)
}

// jitter spreads d by share either way, so that workers do not poll in step.
func jitter(d time.Duration, share float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*share*float64(d))
}
