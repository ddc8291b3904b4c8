package zk

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/unstale/unstale/lock/internal/locking"
)

// A service is a Backend at work.
type service struct {
	backend Backend
	config  locking.Config
	acl     []zk.ACL

	mu      sync.Mutex
	session *session // the latest one, nil before the first
	places  map[locking.Token]*place
	closed  bool
	work    sync.WaitGroup // goroutines, which end with the session
}

// A place is a claim's node in the queue of its lock.
type place struct {
	session *session
	path    string
	before  string // the node that has to go first, as of the latest look
}

// Acquire implements locking.Service. A new claim creates a node. One that has waited checks
// whether it is the first, and then writes its node. A majority must agree to either, which proves
// that the session lives.
func (s *service) Acquire(ctx context.Context, c locking.Claim, wait bool) (locking.Answer, error) {
	session, err := s.current()
	if err != nil {
		return locking.Answer{}, err
	}
	dir := s.dir(c.Name)
	if !wait { // no node is made where it would only be removed
		if a, free, err := s.readQueue(ctx, session, dir); err != nil || !free {
			return a, askError(s, err)
		}
	}
	for {
		p, fresh := s.place(c), false
		if p == nil {
			path, err := beside(ctx, session, func() (string, error) { return session.create(ctx, dir, c.Token) }, session.remove)
			if err != nil {
				return locking.Answer{}, askError(s, err)
			}
			p, fresh = &place{session: session, path: path}, true
			s.put(c, p)
		}
		a, err := s.turn(ctx, p, dir, fresh)
		switch {
		case errors.Is(err, zk.ErrNoNode) && ctx.Err() == nil: // was removed
			s.take(c)
			continue
		case err != nil:
			return locking.Answer{}, askError(s, err)
		case !a.Acquired && !wait:
			s.Lapsed(c)
		}
		a.Queued = !a.Acquired && wait
		return a, nil
	}
}

// turn reports whether a place is the first one. The error is zk.ErrNoNode if the place is gone.
func (s *service) turn(ctx context.Context, p *place, dir string, fresh bool) (locking.Answer, error) {
	for {
		nodes, err := p.session.contenders(ctx, dir)
		if err != nil {
			return locking.Answer{}, err
		}
		first, before, found := position(nodes, p.path[len(dir)+1:])
		switch {
		case !found:
			return locking.Answer{}, zk.ErrNoNode
		case before == "" && fresh:
			return locking.Answer{Acquired: true}, nil
		case before == "":
			return locking.Answer{Acquired: true}, p.session.writeHolder(ctx, p.path)
		}
		a, err := p.session.holder(ctx, dir, first)
		if errors.Is(err, zk.ErrNoNode) {
			continue // it has gone meanwhile
		}
		s.mu.Lock()
		p.before = dir + "/" + before
		s.mu.Unlock()
		return a, err
	}
}

// readQueue reports whether the lock has neither a holder nor a waiter. It asks the leader first:
// another server may lag behind.
func (s *service) readQueue(ctx context.Context, session *session, dir string) (a locking.Answer, free bool, err error) {
	for {
		if err := session.sync(ctx, dir); err != nil {
			return locking.Answer{}, false, err
		}
		nodes, err := session.contenders(ctx, dir)
		if len(nodes) == 0 || err != nil {
			return locking.Answer{}, err == nil || errors.Is(err, zk.ErrNoNode), notGone(err)
		}
		first, _, _ := position(nodes, "")
		a, err := session.holder(ctx, dir, first)
		if !errors.Is(err, zk.ErrNoNode) {
			return a, false, err
		}
	}
}

// Extend implements locking.Service: most servers have to find the node there.
func (s *service) Extend(ctx context.Context, c locking.Claim) (bool, error) {
	p := s.place(c)
	if p == nil {
		return false, nil
	}
	err := p.session.confirm(ctx, p.path)
	if p.session.life.Err() != nil || errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return err == nil, askError(s, err)
}

// Release implements locking.Service. A node that cannot be removed now is removed later, or goes
// with its session.
func (s *service) Release(ctx context.Context, c locking.Claim) (bool, error) {
	p := s.take(c)
	if p == nil || p.session.life.Err() != nil {
		return false, nil
	}
	was, err := beside(ctx, p.session, func() (bool, error) { return p.session.remove1(p.path) }, nil)
	return was, askError(s, err)
}

// Lapsed implements locking.Service: the session lives, and would keep the lock for a holder that
// has given up.
func (s *service) Lapsed(c locking.Claim) {
	if p := s.take(c); p != nil {
		s.start(func() { p.session.remove(p.path) })
	}
}

// Released implements locking.Service: it watches the node before the claim's own.
func (s *service) Released(c locking.Claim) (<-chan struct{}, func() bool) {
	s.mu.Lock()
	p := s.places[c.Token]
	if p == nil {
		s.mu.Unlock()
		return nil, locking.NotWoken
	}
	before := p.before
	s.mu.Unlock()
	return p.session.watch(before), locking.NotWoken
}

// Yields implements locking.Service: a claim goes behind those in the queue.
func (s *service) Yields(locking.Claim) bool { return false }

// PassOn implements locking.Service: the next one in the queue watches the node of the claim, and
// learns of its end.
func (s *service) PassOn(locking.Claim) {}

// Close implements locking.Service: it ends the session, and with it every node of it.
func (s *service) Close() {
	s.mu.Lock()
	s.closed = true
	session := s.session
	s.mu.Unlock()
	if session != nil {
		session.end(locking.ErrClosed)
	}
	s.work.Wait()
}

// start runs f in a goroutine that Close waits for, if it is not closed. f ends with the session.
func (s *service) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

// current returns the session, or a new one if the last one has ended.
func (s *service) current() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, locking.ErrClosed
	case s.session != nil && s.session.life.Err() == nil:
		return s.session, nil
	}
	session, err := newSession(s)
	if err != nil {
		return nil, askError(s, err)
	}
	s.session = session
	s.work.Go(session.run)
	return session, nil
}

// place returns the place of a claim, or nil if it has none.
func (s *service) place(c locking.Claim) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[c.Token]
	if p != nil && p.session.life.Err() != nil {
		delete(s.places, c.Token)
		return nil
	}
	return p
}

func (s *service) put(c locking.Claim, p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places[c.Token] = p
}

// take removes the place of a claim, which then belongs to the caller.
func (s *service) take(c locking.Claim) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[c.Token]
	delete(s.places, c.Token)
	return p
}

func (s *service) dir(name string) string { return s.backend.Root + "/" + nodeName(name) }

// askError adds the operation to an error, and for a missing permission the fix.
func askError(s *service, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("ask ZooKeeper: %w; give the account all permissions on %s, or set another Root", err, s.backend.Root)
	case errors.Is(err, errSession):
		return err
	}
	return fmt.Errorf("ask ZooKeeper: %w", err)
}

func notGone(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
