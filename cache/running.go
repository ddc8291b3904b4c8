package cache

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A running is the life of a Cache, with the goroutines that Close waits for. It is safe for
// concurrent use.
type running struct {
	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex // guards closed against work
	closed bool
	// work has the goroutines that load or send commands to Redis, and callers that hold leases. A
	// command takes at most a Timeout.
	work sync.WaitGroup
	ears sync.WaitGroup // goroutines of the subscription
}

// begin starts the life. Call it before any other method.
func (r *running) begin() { r.life, r.end = context.WithCancel(context.Background()) }

// launch runs f in a goroutine that Close waits for. It reports false after Close.
func (r *running) launch(f func()) bool { return r.launchIn(&r.work, f) }

// launchEar runs f like launch, in a goroutine of the subscription.
func (r *running) launchEar(f func()) bool { return r.launchIn(&r.ears, f) }

func (r *running) launchIn(group *sync.WaitGroup, f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	group.Go(f)
	return true
}

// every calls f in each interval, and one last time when Close has begun. The context of f does not
// end.
func (r *running) every(interval time.Duration, f func(context.Context)) {
	r.launch(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for open := true; open; {
			select {
			case <-r.life.Done():
				open = false
			case <-ticker.C:
			}
			f(context.WithoutCancel(r.life))
		}
	})
}

// stay makes Close wait for the calling goroutine until it calls leave. It reports false after
// Close.
func (r *running) stay() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.work.Add(1)
	}
	return !r.closed
}

func (r *running) leave() { r.work.Done() }

// close makes launch and stay report false.
func (r *running) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// wait waits for the goroutines, for each group at most as long as given. It returns an error if
// the work has not ended by then.
func (r *running) wait(work, ears time.Duration) error {
	patience, ear := time.NewTimer(work), time.NewTimer(ears)
	defer patience.Stop()
	defer ear.Stop()
	deaf := ended(&r.ears)
	select {
	case <-ended(&r.work):
	case <-patience.C:
		return errors.New("close cache: a loader does not end with its context")
	}
	select {
	case <-deaf:
	case <-ear.C:
	}
	return nil
}

// ended returns a channel that is closed when all goroutines of the group have ended.
func ended(group *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	return done
}
