package lock

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/redisclient"
)

// Redlock is the Backend of several Redis that know nothing of each other: whoever has a lock on more than half of them has
// it. It goes on while fewer than half are away. An instance that comes back without what it kept may let a second
// holder in, which Guard makes harmless: start it again after TTL, or let it sync each write to disk (appendfsync always).
type Redlock struct {
	// Clients are those of the instances: three, five or another odd number, each a client of one server that replicates
	// nowhere. The order is the same in every process, or a release wakes several waiters. Each client is as that of
	// [Redis], and none is closed.
	Clients []*redis.Client

	// Prefix is put before every key, as that of [Redis]. Zero: "lock:".
	Prefix string
}

// releaseTries is how often an instance that does not confirm a release is asked, for Timeout each time.
const releaseTries = 3

// redlockService is a Redlock at work. Every instance is asked beside the others, and an answer counts as soon as a quorum
// gives it; the rest comes in when it comes in, for Timeout at most.
type redlockService struct {
	instances []*instance
	config    Config
	launch    func(func()) bool
	warned    sync.Once // of two clients of one server

	mu     sync.Mutex
	silent []bool                    // the instances that gave no answer when they were asked last
	asked  map[token][]chan struct{} // claims for which requests are under way; each channel is closed with its request
}

func (r Redlock) open(config Config, launch func(func()) bool) (service, error) {
	if err := checkPrefix("Redlock", r.Prefix); err != nil {
		return nil, err
	}
	if n := len(r.Clients); n < 3 || n%2 == 0 {
		return nil, fmt.Errorf("Redlock.Clients has %d: it must have an odd number, and three at least, since one more than an odd number tolerates no more outages", n)
	}
	if least := drift(config.TTL); config.Margin < least {
		return nil, fmt.Errorf("the Margin is %v: Redlock needs %v at least, a hundredth of TTL and 2ms, for clocks that run at different rates", config.Margin, least)
	}
	s := &redlockService{config: config, launch: launch, silent: make([]bool, len(r.Clients)), asked: map[token][]chan struct{}{}}
	addrs := map[string]int{}
	for n, client := range r.Clients {
		field := fmt.Sprintf("Redlock.Clients[%d]", n)
		pool, err := checkClient(field, client)
		if err != nil {
			return nil, err
		}
		addr := client.Options().Addr
		if redisclient.FollowsSentinel(client) {
			return nil, fmt.Errorf("%s follows Sentinel, and what takes over may lack locks: give a client of one server, by its address", field)
		}
		if other, ok := addrs[addr]; ok {
			return nil, fmt.Errorf("Redlock.Clients[%d] and [%d] are of the same server, %s: give each instance one client", other, n, addr)
		}
		addrs[addr] = n
		s.instances = append(s.instances, newInstance(client, r.Prefix, fmt.Sprintf("-%d", n), pool, config, launch))
	}
	return s, nil
}

// timeout is for requests side by side.
func (r Redlock) timeout(ttl time.Duration) time.Duration { return redisTimeout(ttl) }

// drift is how much earlier than by our clock a lease may end by that of an instance: the latter runs faster by a hundredth at
// most, as the paper on Redlock has it, and both it and the TTL that it is told are of whole milliseconds. How long the
// instances took to answer is counted in any case, since a lease is counted from before the first of them was asked.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// acquire implements service. What it has got without a quorum it gives back.
func (s *redlockService) acquire(ctx context.Context, c claim, _ bool) (answer, error) {
	ended := s.asking(c.token)
	got := s.ask(ctx, poll{
		where: s.everywhere(),
		question: func(ctx context.Context, n int) reply {
			told, err := s.instances[n].acquire(ctx, c, false) // a release wakes in any case
			if err == nil && !told.acquired {
				err = s.checkTwin(c, n, told)
			}
			return s.reply(n, told.acquired, told, err)
		},
		decided: func(c *count) bool {
			_, most := c.claimed()
			return max(c.yes, most, c.failed) >= c.quorum
		},
		after: func(r reply) { close(ended[r.from]) },
		over:  func() { s.forget(c.token) },
	})
	told, most := got.claimed()
	switch {
	case got.yes >= got.quorum:
		return answer{acquired: true}, nil
	case got.cause != nil || got.failed >= got.quorum || got.no == 0:
		return answer{}, got.err()
	}
	s.giveBack(ctx, c, got)
	told.split = most+got.failed < got.quorum
	return told, nil
}

// giveBack releases what an attempt that was refused may have, without waking anybody: those who wait find out by themselves, and
// not all at once. It waits for the instances that have said yes, so that another attempt does not meet this one.
func (s *redlockService) giveBack(ctx context.Context, c claim, got *count) {
	unknown, had := s.freeing(c), s.freeing(c)
	unknown.where = got.those(func(r *reply) bool { return r == nil || r.err != nil })
	had.where = got.those(func(r *reply) bool { return r != nil && r.yes })
	had.decided = func(c *count) bool { return c.yes+c.no+c.failed == len(had.where) }
	if len(unknown.where) > 0 {
		s.beside(func() { s.ask(context.Background(), unknown) })
	}
	if len(had.where) > 0 {
		s.ask(ctx, had)
	}
}

func (s *redlockService) extend(ctx context.Context, c claim) (bool, error) {
	return s.ask(ctx, poll{
		where: s.everywhere(),
		question: func(ctx context.Context, n int) reply {
			was, err := s.instances[n].extend(ctx, c)
			return s.reply(n, was, answer{}, err)
		},
	}).verdict()
}

// release implements service. It wakes a waiter when a quorum is free: one that asks earlier would find the lock taken.
func (s *redlockService) release(ctx context.Context, c claim) (bool, error) {
	was, err := s.ask(ctx, s.freeing(c)).verdict()
	if was {
		s.beside(func() { s.wake(c.name) })
	}
	return was, err
}

// freeing releases at every instance, after the request that may have locked it, and again where that is not confirmed.
func (s *redlockService) freeing(c claim) poll {
	s.mu.Lock()
	ended := s.asked[c.token]
	s.mu.Unlock()
	once := func(ctx context.Context, n int) reply {
		was, err := s.instances[n].release(ctx, c, false)
		return s.reply(n, was, answer{}, err)
	}
	return poll{
		where: s.everywhere(),
		question: func(ctx context.Context, n int) reply {
			if ended != nil {
				<-ended[n]
			}
			return once(ctx, n)
		},
		after: func(r reply) {
			for try := 1; try < releaseTries && r.err != nil; try++ {
				ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
				r = once(ctx, r.from)
				cancel()
			}
		},
	}
}

// reply names the instance in an error.
func (s *redlockService) reply(n int, yes bool, told answer, err error) reply {
	if err != nil {
		err = fmt.Errorf("%s: %w", s.addr(n), err)
	}
	return reply{n, yes, told, err}
}

// released implements service. Waiters listen at one instance, so that one release wakes one of them.
func (s *redlockService) released(c claim) (<-chan struct{}, func() bool) {
	return s.instances[s.order(c.name)[0]].wakes.listen(c.name)
}

func (s *redlockService) passOn(c claim) { s.wake(c.name) }

// lapsed implements service: the leases have ended by themselves.
func (s *redlockService) lapsed(claim) {}

// close implements service: the clients are the caller's, and what goes on in the background is the Locker's.
func (s *redlockService) close() {}

// wake wakes one waiter, where waiters listen.
func (s *redlockService) wake(name string) {
	for _, n := range s.order(name) {
		ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
		err := s.instances[n].wake(ctx, name)
		cancel()
		if err == nil {
			return // otherwise waiters ask by themselves after a while
		}
	}
}

// order is that in which instances are taken for the wake-ups of a name: another one for each name, and those that
// are silent last. Where two processes do not agree, waiters ask by themselves.
func (s *redlockService) order(name string) []int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // it never fails
	first := int(h.Sum32() % uint32(len(s.instances)))
	order := append(s.everywhere()[first:], s.everywhere()[:first]...)
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case s.silent[a] == s.silent[b]:
			return 0
		case s.silent[a]:
			return 1
		}
		return -1
	})
	return order
}

func (s *redlockService) everywhere() []int {
	all := make([]int, len(s.instances))
	for n := range all {
		all[n] = n
	}
	return all
}

// asking notes that requests of a claim are under way.
func (s *redlockService) asking(t token) []chan struct{} {
	ended := make([]chan struct{}, len(s.instances))
	for n := range ended {
		ended[n] = make(chan struct{})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[t] = ended
	return ended
}

func (s *redlockService) forget(t token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asked, t)
}

// errTwin is wrapped by what tells of two clients of one server.
var errTwin = errors.New("it has two clients")

// checkTwin looks whether an instance is taken by this same claim, by way of another client: values tell by which one. Its
// vote counts once in any case.
func (s *redlockService) checkTwin(c claim, n int, told answer) error {
	if claimOf(told) != c.token.String() {
		return nil
	}
	_, mark, _ := strings.Cut(told.token, "-")
	err := fmt.Errorf("%w: Redlock.Clients[%s] and [%d] are of the same server; give each instance one client", errTwin, mark, n)
	s.warned.Do(func() { s.config.Logger.Error("a Redlock has fewer instances than clients", "error", err) })
	return err
}

func (s *redlockService) addr(n int) string {
	return s.instances[n].client.(*redis.Client).Options().Addr
}
