package lock

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lock/internal/locking"
)

// An asked claim is one whose requests are under way, or may still arrive.
type asked struct {
	ended      []chan struct{} // each is closed with the request to its instance
	unanswered []int           // instances where a copy may still arrive
	freed      bool            // the claim was released meanwhile
}

// asking records that requests of a claim are running.
func (s *redlockService) asking(t locking.Token) *asked {
	a := &asked{ended: make([]chan struct{}, len(s.instances))}
	for n := range a.ended {
		a.ended[n] = make(chan struct{})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[t] = a
	return a
}

// ended records the end of one request.
func (s *redlockService) ended(a *asked, r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if unanswered(r.err) {
		a.unanswered = append(a.unanswered, r.from)
	}
	close(a.ended[r.from])
}

// free records the release of a claim. It returns its requests, or nil if none is running or may
// still arrive.
func (s *redlockService) free(t locking.Token) *asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asked[t]
	if a != nil {
		a.freed = true
	}
	if !s.freed[t] {
		s.freed[t] = false // until gone
	}
	return a
}

// known records that the outcome of a release is known. Before that, only the release itself may
// remove the claim, or it would find that the claim has vanished.
func (s *redlockService) known(t locking.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.freed[t]; ok {
		s.freed[t] = true
	}
}

// wasFreed returns the claim that has an instance, and whether this process has released it. Its
// release has not reached that instance yet, or has failed there.
func (s *redlockService) wasFreed(told locking.Answer) (t locking.Token, ok bool) {
	text, _ := hex.DecodeString(claimOf(told))
	copy(t[:], text)
	s.mu.Lock()
	defer s.mu.Unlock()
	return t, s.freed[t]
}

// gone runs when all requests of a release have ended. If some have failed, the claim stays at
// their instances for a TTL at most.
func (s *redlockService) gone(t locking.Token, failed bool) {
	if failed {
		time.AfterFunc(s.config.TTL, func() { s.gone(t, false) })
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.freed, t)
}

// outlast runs when all requests of a claim have ended. A copy of a request without a reply may
// arrive after the release, and lock without a holder, until the window of the claim ends. Then
// outlast releases it again where that may have happened.
func (s *redlockService) outlast(c locking.Claim, a *asked) {
	if len(a.unanswered) > 0 { // it no longer changes
		_ = sleep.For(s.life, c.Asked+s.config.Timeout-locking.Now())
	}
	s.mu.Lock()
	delete(s.asked, c.Token)
	freed := a.freed
	s.mu.Unlock()
	if freed && len(a.unanswered) > 0 {
		again := s.freeing(c)
		again.where = a.unanswered
		s.ask(context.Background(), again)
	}
}
