package verify

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	stallStep  = 5 * time.Millisecond
	leastStall = 10 * time.Millisecond // less is not noted
)

// A stall is a time in which a process did not run although it wanted to.
type stall struct {
	From moment `json:"from"`
	To   moment `json:"to"`
}

// A stallWatch notes this process' stalls. Safe for concurrent use.
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

// stalled is for how long, between two moments, at least one of the stalls lasted.
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
