package zk_test

import (
	"context"

	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/internal/locking"
	"github.com/unstale/unstale/lock/zk"
)

// A tap is a Backend that shows a test the service of a Locker.
type tap struct {
	lock.Backend
	w       *world
	service locking.Service
}

// Opener implements lock.Backend.
func (p *tap) Opener() lock.Opener {
	return locking.NewOpener(func(o locking.Opening) (locking.Service, error) {
		var err error
		p.service, err = locking.Open(p.Backend.Opener(), o)
		return tapped{p.service, p.w}, err
	}, nil)
}

// A tapped service remembers who has a lock.
type tapped struct {
	locking.Service
	w *world
}

// Acquire implements locking.Service.
func (s tapped) Acquire(ctx context.Context, c locking.Claim, wait bool) (locking.Answer, error) {
	a, err := s.Service.Acquire(ctx, c, wait)
	if err == nil && a.Acquired {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		s.w.latest[c.Name] = acquired{s.Service, c}
	}
	return a, err
}

// An acquired lock has the data that its holder needs to extend it.
type acquired struct {
	service locking.Service
	claim   locking.Claim
}

// Locker is the Locker of locktest.World, tapped.
func (w *world) Locker(config lock.Config) *lock.Locker {
	w.Helper()
	p := &tap{Backend: config.Backend, w: w}
	if p.Backend == nil {
		p.Backend = w.backend
	}
	config.Backend = p
	l := w.World.Locker(config)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.services[l] = p.service
	return l
}

// extend extends a lock immediately. No other holder has acquired it since.
func (w *world) extend(ctx context.Context, held *lock.Held) error {
	w.mu.Lock()
	latest := w.latest[held.Name()]
	w.mu.Unlock()
	was, err := latest.service.Extend(ctx, latest.claim)
	if err == nil && !was {
		err = lock.ErrLost
	}
	return err
}

// serverOf returns the address of the server that a Locker has its session with.
func (w *world) serverOf(l *lock.Locker) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return zk.ServerOf(w.services[l])
}
