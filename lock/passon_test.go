package lock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
)

// An unheard context has ended when asked, and wakes no goroutine that waits for its end: as if a
// wake-up came in the same instant.
type unheard struct {
	context.Context
	over atomic.Bool
}

func (u *unheard) Done() <-chan struct{} { return nil }

func (u *unheard) Err() error {
	if u.over.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

// A stage holds a client's BLPOPs back until there is a wake-up, and calls woken behind the first
// one, and asks before the next script.
type stage struct {
	listens, comes chan struct{} // closed when a BLPOP runs, and to let it continue
	first, next    sync.Once
	woken, asks    func()
	popped         atomic.Bool
}

func (s *stage) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *stage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch {
		case cmd.Name() == "blpop":
			s.first.Do(func() { close(s.listens) })
			<-s.comes
			err := next(context.WithoutCancel(ctx), cmd) // how long it was held back does not count
			s.woken()
			s.popped.Store(true)
			return err
		case s.popped.Load() && cmd.Name() == "evalsha":
			s.next.Do(s.asks)
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return next(ctx, cmd)
	}
}

// A waiter that was woken and gives up passes the wake-up on: before it asks, while it asks, and if
// its locker is closed meanwhile.
func TestWokenOneGivesUp(t *testing.T) {
	t.Parallel()
	three := newInstances(t, 3)
	for kind, backend := range map[string]func(i *instances, clients []*redis.Client) lock.Backend{
		"Redis": func(i *instances, clients []*redis.Client) lock.Backend {
			return lock.Redis{Client: clients[0], Prefix: i.prefix}
		},
		"Redlock": func(i *instances, clients []*redis.Client) lock.Backend {
			return lock.Redlock{Clients: clients, Prefix: i.prefix}
		},
	} {
		for _, when := range []string{"woken", "asking", "closed"} {
			t.Run(kind+" "+when, func(t *testing.T) {
				t.Parallel()
				i := three.of(t)
				held := i.Acquire(i.Locker(lock.Config{Backend: backend(i, i.clients())}), "a")

				s := &stage{listens: make(chan struct{}), comes: make(chan struct{}), woken: func() {}, asks: func() {}}
				clients := i.clients()
				for _, client := range clients {
					client.AddHook(s)
				}
				l := i.Locker(lock.Config{Backend: backend(i, clients)})
				lock.NeverPoll(l)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				switch when {
				case "woken":
					own := &unheard{Context: ctx}
					ctx, s.woken = own, func() { own.over.Store(true) }
				case "asking":
					s.asks = cancel
				case "closed":
					s.asks = func() {
						cancel()
						go func() { _ = l.Close() }()
						testenv.Eventually(t, "the end of the locker", func() bool { return lock.Closed(l) })
					}
				}
				gone := make(chan error, 1)
				go func() {
					_, err := l.Acquire(ctx, "a")
					gone <- err
				}()
				<-s.listens
				must(t, held.Release())
				testenv.Eventually(t, "the wake-up", func() bool { return i.wakeUps() == 1 })
				close(s.comes)
				if err := <-gone; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					t.Errorf("it gave up with %v", err)
				}
				must(t, l.Close()) // which waits for background work
				if n := i.wakeUps(); n != 1 {
					t.Errorf("%d wake-ups are left for the next waiter", n)
				}
			})
		}
	}
}

// wakeUps returns the number of wake-ups for waiters of the lock "a".
func (i *instances) wakeUps() (n int64) {
	i.Helper()
	for _, admin := range i.admins {
		n += admin.LLen(i.Context(), i.key()+":wake").Val()
	}
	return n
}
