package console

import (
	"context"
	"sync"
	"time"
)

// panelLimit bounds one statement for a panel.
const panelLimit = 2 * time.Second

// A source reads what one or more panels show. All pages share its readings, and at most one is
// under way. Safe for concurrent use.
type source struct {
	every time.Duration // how long a reading counts as current
	limit time.Duration // of one reading
	read  func(ctx context.Context) (data any, err error)

	mu      sync.Mutex
	last    reading
	expired bool          // since the start of the last reading
	running chan struct{} // closed at the end of the current reading; nil: none
}

// A reading is the result of a source.
type reading struct {
	data  any       // of the latest reading that had any; nil: none yet
	at    time.Time // when that was read
	err   error     // of the latest reading
	tried time.Time // when that ended; zero: never
}

// get returns the latest reading. If it is not current, get starts another one and waits until ctx
// ends; the reading continues meanwhile. base ends it early.
func (s *source) get(ctx, base context.Context) reading {
	s.mu.Lock()
	if !s.expired && !s.last.tried.IsZero() && time.Since(s.last.tried) < s.rest(s.last.err) {
		defer s.mu.Unlock()
		return s.last
	}
	done := s.start(base)
	s.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// sources has the source of each panel once.
type sources []*source

// expire makes all panels read again.
func (all sources) expire() {
	for _, s := range all {
		s.expire()
	}
}

// expire makes the next get start another reading.
func (s *source) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = true
}

// retryAfter is how soon a failed reading is tried again.
const retryAfter = time.Second

// rest returns how long a reading counts as current.
func (s *source) rest(err error) time.Duration {
	if err != nil {
		return min(s.every, retryAfter)
	}
	return s.every
}

// start begins a reading unless one is under way. It needs the lock.
func (s *source) start(base context.Context) (done <-chan struct{}) {
	if s.running != nil {
		return s.running
	}
	running := make(chan struct{})
	s.running, s.expired = running, false
	go func() {
		ctx, cancel := context.WithTimeout(base, s.limit)
		data, err := s.read(ctx)
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last.err, s.last.tried = err, time.Now()
		if data != nil {
			s.last.data, s.last.at = data, s.last.tried
		}
		s.running = nil
		close(running)
	}()
	return running
}

// idle waits until no reading is under way.
func (s *source) idle() {
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running != nil {
		<-running
	}
}
