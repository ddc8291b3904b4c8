package worker

import (
	"time"

	"github.com/unstale/unstale/internal/store"
)

const (
	// countShare is how many times as long as a count of the sets that wait took the next one waits.
	countShare = 20
	// steadyTime is for how long no more sets than a batch must have come before their rate tells when all will be
	// taken.
	steadyTime = 5 * time.Second
)

// setCounts are what counts of the sets that wait have found since sets began.
type setCounts struct {
	next  time.Time // no count before
	base  int64     // the total that later ones are compared with
	grown time.Time // when it last rose
}

// take records a total, and reports whether requests keep arriving. What is being finished while others are counted may
// appear on both sides or on none, so that a batch more or less does not count as growth.
func (c *setCounts) take(total int64, took time.Duration) (arriving bool) {
	now := time.Now()
	if total > c.base+setsOfABatch || c.grown.IsZero() {
		c.base, c.grown = total, now
	}
	c.next = now.Add(countShare * took)
	return now.Sub(c.grown) < steadyTime
}

// countSets brings the total of the sets up to date, if they are under way: those that were taken and those that wait.
func (s *sweepWatch) countSets() {
	s.mu.Lock()
	progress := s.states[store.SweepSet]
	began, taken := progress.began, progress.progress.Scanned
	wanted := progress.running && !time.Now().Before(progress.counts.next)
	s.mu.Unlock()
	if !wanted {
		return
	}
	asked := time.Now()
	n, err := s.worker.store.CountSweeps(s.ctx, store.SweepSet)
	if err != nil {
		s.worker.log.Debug("cannot count the sets that wait", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if progress.began != began { // others are under way by now
		return
	}
	total := taken + int64(n)
	progress.arriving = progress.counts.take(total, time.Since(asked))
	progress.progress.Total = max(total, progress.progress.Scanned)
}
