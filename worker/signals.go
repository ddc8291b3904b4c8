package worker

import "sync/atomic"

// signals pass the state of one goroutine of a worker to the others. Safe for concurrent use.
type signals struct {
	wake     chan struct{} // rows were committed; capacity 1, sent to without waiting
	lossSeen atomic.Bool   // another goroutine than the loop has found a loss, which the loop heals
	// the loop has found that an operator paused all workers, or has not looked yet
	paused atomic.Bool
}

// newSignals returns signals that count as paused until the loop, or drain, has looked.
func newSignals() *signals {
	s := &signals{wake: make(chan struct{}, 1)}
	s.paused.Store(true)
	return s
}

// lost makes the loop heal a loss now.
func (s *signals) lost() {
	s.lossSeen.Store(true)
	notify(s.wake)
}

// notify leaves a signal unless one waits already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
