package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/lock/internal/locking"
)

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

// ask asks instances in parallel, each for Timeout or until the deadline of ctx. It returns when
// the poll is decided, when all have answered, or when ctx ends. Close waits for the rest.
func (s *redlockService) ask(ctx context.Context, p poll) *count {
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
			s.note(r)
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
			c.add(r)
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				c.cause = context.Cause(ctx)
				return c
			}
			for _, n := range c.missing(p.where) { // they had the same time
				c.add(s.reply(n, false, locking.Answer{}, context.Cause(ctx)))
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

// note remembers whether an instance answers.
func (s *redlockService) note(r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent[r.from] = r.err != nil && !errors.Is(r.err, errTwin)
}

func (c *count) add(r reply) {
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

// missing returns those of whom nothing has come.
func (c *count) missing(where []int) []int {
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
