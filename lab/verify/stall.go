package verify

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	stallStep  = 5 * time.Millisecond
	leastStall = 10 * time.Millisecond // shorter stalls are not recorded
)

// A stall is a period during which a runnable process did not run.
type stall struct {
	From moment `json:"from"`
	To   moment `json:"to"`
}

// A stallWatch records the stalls of this process. Safe for concurrent use.
type stallWatch struct {
	mu     sync.Mutex
	stalls []stall
}

// watch sleeps in short steps until ctx ends.
func (s *stallWatch) watch(ctx context.Context) {
	ticker := time.NewTicker(stallStep)
	defer ticker.Stop()
	last := now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		at := now()
		if at-last > (stallStep + leastStall).Nanoseconds() {
			s.mu.Lock()
			s.stalls = append(s.stalls, stall{after(last, stallStep), at})
			s.mu.Unlock()
		}
		last = at
	}
}

// take returns the stalls since the last call.
func (s *stallWatch) take() []stall {
	s.mu.Lock()
	defer s.mu.Unlock()
	stalls := s.stalls
	s.stalls = nil
	return stalls
}

// stalled returns for how long, between two moments, at least one of the stalls lasted.
func stalled(stalls []stall, from, to moment) (total int64) {
	sorted := slices.SortedFunc(slices.Values(stalls), func(a, b stall) int { return int(min(max(a.From-b.From, -1), 1)) })
	for _, s := range sorted {
		if begin, end := max(s.From, from), min(s.To, to); end > begin {
			total += end - begin
			from = end
		}
	}
	return total
}
