package lock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// ZooKeeper is the Backend of one ensemble. Each Locker has a session of its own, opened at its first acquisition, that lasts
// 1.5 x TTL beyond the last word from its process: a server of which the others have lost sight still answers, so that the
// holder must give up earlier than they do. Processes get a lock in the order in which they came.
type ZooKeeper struct {
	// Servers are addresses of the ensemble, such as zk1.internal:2181. The port may be left out. A name is looked up at
	// each connection.
	Servers []string

	// Root is the path below which each lock has a node, made if it is not there. Zero: "/unstale/locks".
	Root string

	// User and Password log in by the scheme digest. What the Locker makes is then for this account alone. Zero: for anybody.
	User, Password string

	// Dial connects to a server, as the DialContext of a net.Dialer, which it is if nil, or of a tls.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const defaultRoot = "/unstale/locks"

// zkService is a ZooKeeper at work.
type zkService struct {
	backend ZooKeeper
	config  Config
	acl     []zk.ACL

	mu      sync.Mutex
	session *zkSession // the latest one, nil before the first
	places  map[token]*place
	closed  bool
	work    sync.WaitGroup // goroutines, which end with the session
}

// A place is a claim's node in the queue of its lock.
type place struct {
	session *zkSession
	path    string
	before  string // the node that has to go first, as of the latest look
}

func (z ZooKeeper) open(config Config, _ func(func()) bool) (service, error) {
	if z.Root == "" {
		z.Root = defaultRoot
	}
	if z.Dial == nil {
		z.Dial = new(net.Dialer).DialContext
	}
	s := &zkService{backend: z, config: config, acl: zk.WorldACL(zk.PermAll), places: map[token]*place{}}
	if z.User != "" {
		s.acl = zk.AuthACL(zk.PermAll)
	}
	return s, z.check()
}

// timeout leaves time to notice a server that is frozen and to ask another, before the holder has to give up.
func (z ZooKeeper) timeout(ttl time.Duration) time.Duration { return ttl / 4 }

func (z ZooKeeper) check() error {
	var errs []error
	if len(z.Servers) == 0 {
		errs = append(errs, errors.New(`ZooKeeper.Servers is empty: name the servers, such as "zk1.internal:2181"`))
	}
	for _, addr := range z.Servers {
		if addr == "" || strings.ContainsAny(addr, ", /") {
			errs = append(errs, fmt.Errorf("ZooKeeper.Servers has %q: each is one host:port", addr))
		}
	}
	for _, part := range strings.Split(strings.TrimPrefix(z.Root, "/"), "/") {
		if z.Root[0] != '/' || part == "" || part != nodeName(part) {
			errs = append(errs, fmt.Errorf("ZooKeeper.Root is %q: it must be a path such as %s, of letters, digits and -_.:@", z.Root, defaultRoot))
			break
		}
	}
	if strings.Contains(z.User, ":") || z.User == "" && z.Password != "" {
		errs = append(errs, fmt.Errorf("ZooKeeper.User is %q: it must not have a colon, nor be empty beside a Password", z.User))
	}
	return errors.Join(errs...)
}

// acquire implements service. A new claim makes a node; one that has waited sees whether it is first now, and then has its
// node written: most servers have to agree to either, so that the session is known to live.
func (s *zkService) acquire(ctx context.Context, c claim, wait bool) (answer, error) {
	session, err := s.current()
	if err != nil {
		return answer{}, err
	}
	dir := s.dir(c.name)
	if !wait { // no node is made where it would only be removed
		if a, free, err := s.look(ctx, session, dir); err != nil || !free {
			return a, askError(s, err)
		}
	}
	for {
		p, fresh := s.place(c), false
		if p == nil {
			path, err := beside(ctx, session, func() (string, error) { return session.create(ctx, dir, c.token) }, session.remove)
			if err != nil {
				return answer{}, askError(s, err)
			}
			p, fresh = &place{session: session, path: path}, true
			s.put(c, p)
		}
		a, err := s.turn(ctx, p, dir, fresh)
		switch {
		case errors.Is(err, zk.ErrNoNode) && ctx.Err() == nil: // somebody has removed ours
			s.take(c)
			continue
		case err != nil:
			return answer{}, askError(s, err)
		case !a.acquired && !wait:
			if p := s.take(c); p != nil {
				s.start(func() { p.session.remove(p.path) })
			}
		}
		a.queued = !a.acquired && wait
		return a, nil
	}
}

// turn asks whether a place is the first one. The error is zk.ErrNoNode if the place is gone.
func (s *zkService) turn(ctx context.Context, p *place, dir string, fresh bool) (answer, error) {
	for {
		nodes, err := p.session.contenders(ctx, dir)
		if err != nil {
			return answer{}, err
		}
		first, before, found := position(nodes, p.path[len(dir)+1:])
		switch {
		case !found:
			return answer{}, zk.ErrNoNode
		case before == "" && fresh:
			return answer{acquired: true}, nil
		case before == "":
			return answer{acquired: true}, p.session.write(ctx, p.path)
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

// look reports whether nobody has the lock, or waits for it. It asks the leader first: another server may lag behind.
func (s *zkService) look(ctx context.Context, session *zkSession, dir string) (a answer, free bool, err error) {
	for {
		if err := session.sync(ctx, dir); err != nil {
			return answer{}, false, err
		}
		nodes, err := session.contenders(ctx, dir)
		if len(nodes) == 0 || err != nil {
			return answer{}, err == nil || errors.Is(err, zk.ErrNoNode), notGone(err)
		}
		first, _, _ := position(nodes, "")
		a, err := session.holder(ctx, dir, first)
		if !errors.Is(err, zk.ErrNoNode) {
			return a, false, err
		}
	}
}

// extend implements service: most servers have to find the node there.
func (s *zkService) extend(ctx context.Context, c claim) (bool, error) {
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

// release implements service. A node that cannot be removed now is removed later, or goes with its session.
func (s *zkService) release(ctx context.Context, c claim) (bool, error) {
	p := s.take(c)
	if p == nil || p.session.life.Err() != nil {
		return false, nil
	}
	was, err := beside(ctx, p.session, func() (bool, error) { return p.session.remove1(p.path) }, nil)
	return was, askError(s, err)
}

// lapsed implements service: the session lives, and would keep the lock for a holder that has given up.
func (s *zkService) lapsed(c claim) {
	if p := s.take(c); p != nil {
		s.start(func() { p.session.remove(p.path) })
	}
}

// released implements service: it watches the node before the claim's own.
func (s *zkService) released(c claim) (<-chan struct{}, func() bool) {
	s.mu.Lock()
	p := s.places[c.token]
	if p == nil {
		s.mu.Unlock()
		return nil, notWoken
	}
	before := p.before
	s.mu.Unlock()
	return p.session.watch(before), notWoken
}

// passOn implements service: the next one in the queue watches the claim's node, and hears of its end.
func (s *zkService) passOn(claim) {}

// close ends the session, and with it every node of it.
func (s *zkService) close() {
	s.mu.Lock()
	s.closed = true
	session := s.session
	s.mu.Unlock()
	if session != nil {
		session.end(ErrClosed)
	}
	s.work.Wait()
}

// start runs f in a goroutine that close waits for, if it is not closed. f ends with the session.
func (s *zkService) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

// current returns the session, a new one if the last is over.
func (s *zkService) current() (*zkSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, ErrClosed
	case s.session != nil && s.session.life.Err() == nil:
		return s.session, nil
	}
	session, err := newZkSession(s)
	if err != nil {
		return nil, askError(s, err)
	}
	s.session = session
	s.work.Go(session.run)
	return session, nil
}

// place returns that of a claim, nil if it has none any more.
func (s *zkService) place(c claim) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[c.token]
	if p != nil && p.session.life.Err() != nil {
		delete(s.places, c.token)
		return nil
	}
	return p
}

func (s *zkService) put(c claim, p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places[c.token] = p
}

// take removes the place of a claim, which then belongs to the caller.
func (s *zkService) take(c claim) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[c.token]
	delete(s.places, c.token)
	return p
}

func (s *zkService) dir(name string) string { return s.backend.Root + "/" + nodeName(name) }

// askError says what was tried, and for what the account lacks how to cure it.
func askError(s *zkService, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("ask ZooKeeper: %w; give the account all rights on %s, or set another Root", err, s.backend.Root)
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
