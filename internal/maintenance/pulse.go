package maintenance

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Reasons why the loop is unhealthy, in addition to outages.
var (
	errNotPolled = errors.New("mysql was not polled for a second")
	ErrHealing   = errors.New("redis went back in time, and is not healed yet")
	errUnstarted = errors.New("the first poll is not over")
	ErrPaused    = errors.New("all workers are paused")
	// ErrEmptied is the ErrHealing of a Redis that has lost everything, stale entries too.
	ErrEmptied = fmt.Errorf("%w: it holds no data, so nothing is stale, and the journal is made to match", ErrHealing)
)

// A Pulse is the health of the loop, which lets another goroutine send heartbeats on time. The loop
// is healthy if it polls MySQL, is not paused, and Redis has everything that was settled. Safe for
// concurrent use.
type Pulse struct {
	mu      sync.Mutex
	stopped error     // why the loop is unhealthy, nil if it is healthy
	polled  time.Time // when MySQL last answered a poll
	batch   time.Time // deadline of the current batch, zero for none
	// the beacon epoch of the last comparison that found Redis complete
	healed string
}

// NewPulse returns the Pulse of a loop that has not polled yet. It is unhealthy until Well.
func NewPulse() *Pulse { return &Pulse{stopped: errUnstarted} }

// Stop marks the loop as unhealthy until Well is called.
func (p *Pulse) Stop(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = why
}

// Well records that the loop has polled and found no problem.
func (p *Pulse) Well() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped, p.polled = nil, time.Now()
}

// Begin records that a batch has claimed its rows, which counts as a poll, and the batch's
// deadline. End records the end of the batch.
func (p *Pulse) Begin(over time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch = over
}

func (p *Pulse) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch, p.polled = time.Time{}, time.Now()
}

// Heal records that Redis has everything, as of a beacon epoch. Every loss starts another epoch.
func (p *Pulse) Heal(epoch string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healed = epoch
}

// now returns why the loop is unhealthy now, or nil.
func (p *Pulse) now() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.stopped == nil && now.Sub(p.polled) > pollLife && !now.Before(p.batch) {
		return errNotPolled
	}
	return p.stopped
}

// Is reports whether the loop is unhealthy for a reason. The reason is ErrHealing while the loop has
// to heal Redis, or to find that nothing needs healing.
func (p *Pulse) Is(why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Is(p.stopped, why)
}

// vouch is like now, and also checks that the loop was last healed in the given beacon epoch.
func (p *Pulse) vouch(epoch string) error {
	if err := p.now(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.healed != epoch {
		return ErrHealing
	}
	return nil
}
