package worker

import (
	"errors"
	"sync"
	"time"
)

// Why the loop vouches for nothing, beside outages.
var (
	errNotPolled = errors.New("mysql was not polled for a second")
	errHealing   = errors.New("redis went back in time, and is not healed yet")
	errUnstarted = errors.New("the first poll is not over")
)

// A pulse is what the loop vouches for, so that another goroutine can send heartbeats at their time: that it polls
// MySQL, is not paused, and that Redis has everything that was settled. Safe for concurrent use.
type pulse struct {
	mu      sync.Mutex
	stopped error     // why it vouches for nothing, nil if it does
	polled  time.Time // when MySQL last answered a poll
	batch   time.Time // when the batch in hand is over at the latest, zero for none
	healed  string    // the epoch of the beacon with which Redis was last compared and found complete
}

func newPulse() *pulse { return &pulse{stopped: errUnstarted} }

// stop notes that the loop vouches for nothing until well.
func (p *pulse) stop(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = why
}

// well notes a step of the loop that has polled and found nothing wrong.
func (p *pulse) well() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped, p.polled = nil, time.Now()
}

// begin notes a batch that has claimed its rows, which is a poll, and is over at a time; end notes that it is.
func (p *pulse) begin(over time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch = over
}

func (p *pulse) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch, p.polled = time.Time{}, time.Now()
}

// heal notes that Redis has everything, as of an epoch of the beacon. Every loss begins another one.
func (p *pulse) heal(epoch string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healed = epoch
}

// now returns why the loop vouches for nothing now, or nil.
func (p *pulse) now() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.stopped == nil && now.Sub(p.polled) > pollLife && !now.Before(p.batch) {
		return errNotPolled
	}
	return p.stopped
}

// heals reports whether the loop has yet to heal Redis, or to see that there is nothing to heal.
func (p *pulse) heals() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Is(p.stopped, errHealing)
}

// vouch is now for a Redis in which the beacon's epoch is the one given.
func (p *pulse) vouch(epoch string) error {
	if err := p.now(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.healed != epoch {
		return errHealing
	}
	return nil
}
