package lock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/redisclient"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lock/internal/locking"
)

// Redlock is the Backend of several independent Redis servers
// (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/): the holder has the lock
// on more than half of them. It works while fewer than half are unavailable. An instance that
// returns without its data may let a second holder in, which Guard makes harmless: start it only
// after TTL, or let it sync each write to disk (appendfsync always). Locks that are held do not
// return to it, so a lock that is held while one instance after another loses its data is lost in
// the end.
type Redlock struct {
	// Clients are the clients of the instances: three, five or another odd number, each a client of
	// one server without replicas. The order must be the same in every process, or a release wakes
	// several waiters. The requirements of [Redis] apply to each client, and none is closed.
	Clients []*redis.Client

	// Prefix is put before every key, as in [Redis]. Zero: "lock:".
	Prefix string
}

// releaseTries is how often an instance that does not confirm a release is asked, for Timeout each
// time.
const releaseTries = 3

// redlockService is a running Redlock. It asks all instances in parallel, and an answer counts as
// soon as a quorum gives it. Later replies are awaited for at most Timeout.
type redlockService struct {
	instances []*instance
	all       []int // the indices of instances
	config    locking.Config
	life      context.Context // ends with Close
	launch    func(func()) bool
	warned    sync.Once // of two clients of one server

	mu     sync.Mutex
	silent []bool                   // the instances that gave no answer when they were asked last
	asked  map[locking.Token]*asked // claims whose requests are under way, or may still arrive
	freed  map[locking.Token]bool   // released claims that instances may still have; true: Release has returned
	yields yields
}

// Opener implements Backend. Requests run in parallel, so the default Timeout is the same as for
// one instance.
func (r Redlock) Opener() Opener { return locking.NewOpener(r.open, nil) }

func (r Redlock) open(o locking.Opening) (locking.Service, error) {
	if err := checkPrefix("Redlock", r.Prefix); err != nil {
		return nil, err
	}
	if n := len(r.Clients); n < 3 || n%2 == 0 {
		return nil, fmt.Errorf("Redlock.Clients has %d: it must be an odd number of at least three, since one more than an odd number tolerates no more outages", n)
	}
	if least := drift(o.Config.TTL); o.Config.Margin < least {
		return nil, fmt.Errorf("the Margin is %v: Redlock needs %v at least, a hundredth of TTL and 2ms, for clocks that run at different rates", o.Config.Margin, least)
	}
	s := &redlockService{config: o.Config, life: o.Life, launch: o.Launch, silent: make([]bool, len(r.Clients)),
		asked: map[locking.Token]*asked{}, freed: map[locking.Token]bool{}, yields: yields{until: map[string]time.Duration{}}}
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
		s.instances = append(s.instances, newInstance(client, r.Prefix, fmt.Sprintf("-%d", n), pool, o))
		s.all = append(s.all, n)
	}
	return s, nil
}

// drift returns how much earlier a lease may end by the clock of an instance than by the local one.
// The former runs at most 1 % faster, as the paper on Redlock assumes, and both it and the TTL are
// in whole milliseconds. The response time of the instances is counted separately, since a lease
// starts before the first request.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Acquire implements locking.Service. Without a quorum it releases the instances that it has got.
func (s *redlockService) Acquire(ctx context.Context, c locking.Claim, wait bool) (locking.Answer, error) {
	asked := s.asking(c.Token)
	got := s.poll(ctx, poll{
		where: s.all,
		question: func(ctx context.Context, n int) reply {
			told, err := s.instances[n].acquire(ctx, c, wait)
			if t, mine := s.wasFreed(told); mine {
				if _, _, err = s.instances[n].release(ctx, locking.Claim{Name: c.Name, Token: t}, false); err == nil {
					told, err = s.instances[n].acquire(ctx, c, wait)
				}
			}
			if err == nil && !told.Acquired {
				err = s.checkTwin(c, n, told)
			}
			return s.reply(n, told.Acquired, told, err)
		},
		decided: func(c *count) bool {
			_, most := c.claimed()
			return max(c.yes, most, c.failed) >= c.quorum
		},
		after: func(r reply) { s.ended(asked, r) },
		over:  func() { s.outlast(c, asked) },
	})
	told, most := got.claimed()
	switch {
	case got.yes >= got.quorum:
		return locking.Answer{Acquired: true}, nil
	case got.cause != nil || got.failed >= got.quorum || got.no == 0:
		return locking.Answer{Lost: slices.ContainsFunc(got.replies, func(r reply) bool { return unanswered(r.err) })}, got.err()
	}
	s.giveBack(ctx, c, got)
	told.Split = most+got.failed < got.quorum
	return told, nil
}

// giveBack releases the instances of a refused attempt without waking waiters: they notice at
// different times, which spreads them. It waits for the instances that have accepted; otherwise
// another attempt could meet this one.
func (s *redlockService) giveBack(ctx context.Context, c locking.Claim, got *count) {
	had, p := got.those(func(r *reply) bool { return r != nil && r.yes }), s.freeing(c)
	p.where = got.those(func(r *reply) bool { return r == nil || r.err != nil || r.yes })
	p.decided = func(c *count) bool { return len(c.silent(had)) == 0 }
	s.known(c.Token)
	if len(had) > 0 {
		s.poll(ctx, p)
	} else {
		s.beside(func() { s.poll(context.Background(), p) })
	}
}

// Extend implements locking.Service.
func (s *redlockService) Extend(ctx context.Context, c locking.Claim) (bool, error) {
	return s.poll(ctx, poll{
		where: s.all,
		question: func(ctx context.Context, n int) reply {
			was, err := s.instances[n].Extend(ctx, c)
			return s.reply(n, was, locking.Answer{}, err)
		},
	}).verdict()
}

// Release implements locking.Service. It wakes a waiter when a quorum is free: one that asks
// earlier would find the lock taken. By then this process could have it again, so it yields to a
// waiter that was woken.
func (s *redlockService) Release(ctx context.Context, c locking.Claim) (bool, error) {
	got := s.poll(ctx, s.freeing(c))
	was, err := got.verdict()
	s.known(c.Token)
	if !was {
		return false, err
	}
	woken := make(chan bool, 1)
	s.beside(func() { woken <- s.wake(c.Name) })
	if slices.ContainsFunc(got.replies, func(r reply) bool { return r.waited }) {
		select {
		case first := <-woken:
			s.yields.updateTurn(c.Name, first)
		case <-ctx.Done():
		}
	}
	return true, nil
}

// Yields implements locking.Service.
func (s *redlockService) Yields(c locking.Claim) bool { return s.yields.last(c.Name) }

// yields are the names that waiters of other processes may acquire first, and until when. Safe for
// concurrent use.
type yields struct {
	mu    sync.Mutex
	until map[string]time.Duration
}

// updateTurn records whether others may acquire a lock before this process.
func (y *yields) updateTurn(name string, first bool) {
	now := locking.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	maps.DeleteFunc(y.until, func(other string, end time.Duration) bool { return end < now || other == name })
	if first {
		y.until[name] = now + firstPause
	}
}

func (y *yields) last(name string) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return locking.Now() < y.until[name]
}

// freeing releases at every instance, after the request that may have locked it, and again where
// that is not confirmed.
func (s *redlockService) freeing(c locking.Claim) poll {
	asked := s.free(c.Token)
	var failed atomic.Bool
	once := func(ctx context.Context, n int) reply {
		was, waited, err := s.instances[n].release(ctx, c, false)
		r := s.reply(n, was, locking.Answer{}, err)
		r.waited = waited
		return r
	}
	return poll{
		where: s.all,
		question: func(ctx context.Context, n int) reply {
			if asked != nil {
				<-asked.ended[n]
			}
			return once(ctx, n)
		},
		after: func(r reply) {
			for try := 1; try < releaseTries && r.err != nil; try++ {
				ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
				r = once(ctx, r.from)
				cancel()
			}
			if r.err != nil {
				failed.Store(true)
			}
		},
		over: func() { s.gone(c.Token, failed.Load()) },
	}
}

// reply names the instance in an error.
func (s *redlockService) reply(n int, yes bool, told locking.Answer, err error) reply {
	if err != nil {
		err = fmt.Errorf("%s: %w", s.instances[n].addr(), err)
	}
	return reply{from: n, yes: yes, told: told, err: err}
}

// Released implements locking.Service. Waiters listen at one instance, so one release wakes one of
// them.
func (s *redlockService) Released(c locking.Claim) (<-chan struct{}, func() bool) {
	return s.instances[s.order(c.Name)[0]].wakes.listen(c.Name)
}

// PassOn implements locking.Service.
func (s *redlockService) PassOn(c locking.Claim) { s.wake(c.Name) }

// Lapsed implements locking.Service: the leases have ended by themselves.
func (s *redlockService) Lapsed(locking.Claim) {}

// Close implements locking.Service: the clients belong to the caller, and background work to the
// Locker.
func (s *redlockService) Close() {}

// wake wakes one waiter, where waiters listen, and reports whether there was one.
func (s *redlockService) wake(name string) bool {
	for _, n := range s.order(name) {
		ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
		woken, err := s.instances[n].wake(ctx, name)
		cancel()
		if err == nil {
			return woken // otherwise waiters ask by themselves after a while
		}
	}
	return false
}

// order returns the order of instances for the wake-ups of a name: a different one for each name,
// with unresponsive instances last. If two processes disagree, waiters poll.
func (s *redlockService) order(name string) []int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // it never fails
	first := int(h.Sum32() % uint32(len(s.instances)))
	order := slices.Concat(s.all[first:], s.all[:first])
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := func(n int) bool { return s.silent[n] }
	answers := func(n int) bool { return !s.silent[n] }
	return append(slices.DeleteFunc(slices.Clone(order), silent), slices.DeleteFunc(order, answers)...)
}

// errTwin means that two clients lead to one server.
var errTwin = errors.New("it has two clients")

// checkTwin checks whether this same claim has taken an instance through another client, whose
// number is in the value. Its vote counts once in any case.
func (s *redlockService) checkTwin(c locking.Claim, n int, told locking.Answer) error {
	if claimOf(told) != c.Token.String() {
		return nil
	}
	_, mark, _ := strings.Cut(told.Token, "-")
	err := fmt.Errorf("%w: Redlock.Clients[%s] and [%d] are of the same server; give each instance one client", errTwin, mark, n)
	s.warned.Do(func() { s.config.Logger.Error("a Redlock has fewer instances than clients", "error", err) })
	return err
}

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
		s.poll(context.Background(), again)
	}
}

// A poll is a question to several instances.
type poll struct {
	where    []int
	question func(ctx context.Context, n int) reply
	// ask need not wait for the rest; nil: when a quorum agrees, or fails
	decided func(c *count) bool
	after   func(r reply) // what is left to do at an instance that has been asked, or nil
	over    func()        // is called when everything has ended, or nil
}

// A reply is the answer of one instance.
type reply struct {
	from int
	yes  bool
	told locking.Answer // to a claim
	err  error

	waited bool // there are waiters, as a release has found
}

// A count is the result of a poll.
type count struct {
	quorum, of      int
	replies         []reply // in the order of their coming
	yes, no, failed int
	cause           error // why the caller gave up, or nil
}

// poll asks instances in parallel, each for Timeout or until the deadline of ctx. It returns when
// the poll is decided, when all have answered, or when ctx ends. Close waits for the rest.
func (s *redlockService) poll(ctx context.Context, p poll) *count {
	c := &count{quorum: len(s.instances)/2 + 1, of: len(s.instances)}
	if p.decided == nil {
		p.decided = func(c *count) bool { return max(c.yes, c.no, c.failed) >= c.quorum }
	}
	replies := make(chan reply, len(p.where))
	var group sync.WaitGroup
	for _, n := range p.where {
		group.Go(func() {
			limited, cancel := s.limit(ctx)
			defer cancel()
			r := p.question(limited, n)
			s.mu.Lock()
			s.silent[n] = r.err != nil && !errors.Is(r.err, errTwin)
			s.mu.Unlock()
			replies <- r
			if p.after != nil {
				p.after(r)
			}
		})
	}
	defer s.beside(func() {
		group.Wait()
		if p.over != nil {
			p.over()
		}
	})
	for range p.where {
		select {
		case r := <-replies:
			c.tally(r)
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				c.cause = context.Cause(ctx)
				return c
			}
			for _, n := range c.silent(p.where) { // they had the same time
				c.tally(s.reply(n, false, locking.Answer{}, context.Cause(ctx)))
			}
			return c
		}
		if p.decided(c) {
			break
		}
	}
	return c
}

// limit returns the context of one request. It ends with the deadline of ctx and not with ctx: what
// was sent is waited for.
func (s *redlockService) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	end := time.Now().Add(s.config.Timeout)
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(end) {
		end = earlier
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}

// beside runs f in a goroutine that Close waits for, or, after Close, synchronously.
func (s *redlockService) beside(f func()) {
	if !s.launch(f) {
		f()
	}
}

func (c *count) tally(r reply) {
	c.replies = append(c.replies, r)
	switch {
	case r.err != nil:
		c.failed++
	case r.yes:
		c.yes++
	default:
		c.no++
	}
}

// silent returns those of whom nothing has come.
func (c *count) silent(where []int) []int {
	return slices.DeleteFunc(slices.Clone(where), func(n int) bool {
		return slices.ContainsFunc(c.replies, func(r reply) bool { return r.from == n })
	})
}

// those returns the instances that satisfy a rule, which gets nil for one that has not answered.
func (c *count) those(rule func(r *reply) bool) (list []int) {
	byInstance := make([]*reply, c.of)
	for i, r := range c.replies {
		byInstance[r.from] = &c.replies[i]
	}
	for n, r := range byInstance {
		if rule(r) {
			list = append(list, n)
		}
	}
	return list
}

// claimed returns the holder of most instances, for a claim that was refused.
func (c *count) claimed() (a locking.Answer, most int) {
	has := map[string]int{}
	var lefts []time.Duration
	for _, r := range c.replies {
		if r.err != nil || r.yes {
			continue
		}
		claim := claimOf(r.told)
		has[claim]++
		if has[claim] > most {
			a, most = r.told, has[claim]
		}
		if r.told.Left >= 0 {
			lefts = append(lefts, r.told.Left)
		}
	}
	slices.Sort(lefts)
	a.Left = -1
	if needed := c.quorum - c.yes; needed >= 1 && needed <= len(lefts) {
		a.Left = lefts[needed-1] // a quorum is free then
	}
	return a, most
}

// claimOf returns the token of a claim, the same at each of its instances.
func claimOf(a locking.Answer) string {
	text, _, _ := strings.Cut(a.Token, "-")
	return text
}

// verdict returns the answer of a quorum.
func (c *count) verdict() (bool, error) {
	switch {
	case c.yes >= c.quorum:
		return true, nil
	case c.no >= c.quorum:
		return false, nil
	}
	return false, c.err()
}

// err returns the reason why there is no quorum.
func (c *count) err() error {
	var failed []error
	for _, r := range c.replies {
		if r.err != nil {
			failed = append(failed, r.err)
		}
	}
	if c.cause != nil {
		return c.cause
	}
	return &quorumError{c.of, failed}
}

// A quorumError lists the errors of the instances that failed.
type quorumError struct {
	of     int
	failed []error
}

func (e *quorumError) Error() string {
	said := make([]string, len(e.failed))
	for i, err := range e.failed {
		said[i] = err.Error()
	}
	return fmt.Sprintf("no quorum of %d instances, since %d failed: %s", e.of, len(e.failed), strings.Join(said, "; "))
}

func (e *quorumError) Unwrap() []error { return e.failed }
