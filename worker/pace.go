package worker

import (
	"math/rand/v2"
	"time"
)

const (
	shortestWait = 5 * time.Millisecond // of polling, unless pages are full
	gatherRows   = 8                    // that a batch should find at a light load
	// While hints follow each other faster than this, a batch collects them for as long, unless the
	// wake interval is as long.
	collectTime = 10 * time.Millisecond
)

// A pace sets when the loop polls next. A batch costs MySQL more than a commit does, with one row
// or ten, so waits grow until each finds some rows, up to the idle interval. Rows at a light load
// are collected, and rows at a heavy load hardly wait. After a full page there is no wait. A
// wake-up starts a batch immediately, unless the previous one began less than the wake interval
// ago. While wake-ups are frequent, their rows are unlinked as early as without this, and one batch
// settles those of several. The loop owns it.
type pace struct {
	idle  time.Duration // the longest wait
	apart time.Duration // the shortest time between two batches for hints
	// waits are longer by at most this share, which keeps workers from polling in step
	spread float64

	wait    time.Duration // the last one
	began   time.Time     // the step under way, or the last one
	carried time.Time     // when the last batch began, or, if it was open for hints, ended
	ended   time.Time     // when it ended
	due     time.Time     // the next step
	hinted  bool          // that one is made for a hint
	open    time.Time     // see beginStep
}

func newPace(cfg Config) pace {
	return pace{idle: cfg.IdleInterval, apart: cfg.WakeInterval, spread: 0.1, wait: cfg.IdleInterval}
}

// beginStep records that a step begins. It returns until when the batch of the step is open for the
// rows of further hints, the zero time if it is settled immediately.
func (p *pace) beginStep(now time.Time) (open time.Time) {
	p.began = now
	p.open = time.Time{}
	if p.hinted && p.apart < collectTime && now.Sub(p.ended) < collectTime {
		p.open = now.Add(collectTime)
	}
	return p.open
}

// next returns the wait after a step that has done r. It counts from when the step began, since
// what was committed after that has waited since then.
func (p *pace) next(now time.Time, r Result) time.Duration {
	shortest := min(shortestWait, p.idle)
	hinted := p.hinted
	p.hinted = false
	if hinted || r.Claimed > 0 {
		p.carried, p.ended = p.began, now
	}
	if !p.open.IsZero() { // it may have claimed just now
		p.carried = now
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

// hint returns the wait for the step that a hint requests, 0 if it can begin immediately. It never
// delays a step.
func (p *pace) hint(now time.Time) time.Duration {
	p.hinted = true
	earliest := p.carried.Add(p.apart)
	if p.due.Before(earliest) {
		earliest = p.due
	}
	return max(earliest.Sub(now), 0)
}
