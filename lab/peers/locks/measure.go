package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/bench"
)

const (
	warm    = 20                     // pairs that are not counted
	rest    = 500 * time.Millisecond // until all who wait do so as they would for long
	longest = 5 * time.Minute        // of one measurement
	section = 2 * time.Millisecond   // for which a waiter that takes turns has the lock
)

type options struct {
	pairs, waiters int
	progress       io.Writer
}

// A pair is the time of an acquisition and a release of an uncontended lock.
type pair struct {
	Peer    string        `json:"peer"`
	Kind    string        `json:"kind"` // of the servers
	Servers int           `json:"servers"`
	Median  time.Duration `json:"median_ns"`
	OfBest  float64       `json:"of_best"` // of those that took turns
}

// A handOver is how a lock goes from one waiter to the next.
type handOver struct {
	Peer      string `json:"peer"`
	Kind      string `json:"kind"` // of the servers
	Servers   int    `json:"servers"`
	Processes int    `json:"processes"`
	Waiters   int    `json:"waiters"`
	// from the call that releases to the return of the call that acquires
	Median   time.Duration `json:"median_ns"`
	Requests float64       `json:"requests"` // of all clients, for each hand-over
	Commands float64       `json:"commands"` // that all servers ran, for each
	Each     float64       `json:"each"`     // times that a waiter got it, in the median
	Least    float64       `json:"least"`    // times that the slowest one got it, of Each
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func measure(ctx context.Context, o options) (r report, err error) {
	s, err := openSite(ctx, servers.Kind(os.Getenv("UNSTALE_TEST_DB")))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	fmt.Fprintln(o.progress, "pairs")
	if r.Pairs, err = s.pairs(ctx, o.pairs); err != nil {
		return r, err
	}
	for _, p := range peers() {
		if p.Mint {
			continue
		}
		for _, processes := range []int{o.waiters / 10, o.waiters} {
			fmt.Fprintf(o.progress, "hand-overs: %s, %d %s, %d processes\n", p.Name, p.Servers, p.Kind, processes)
			h, err := s.handOvers(ctx, p, processes, o.waiters, 0)
			if err != nil {
				return r, fmt.Errorf("%s: %w", p.Name, err)
			}
			r.HandOvers = append(r.HandOvers, h)
		}
		for _, processes := range []int{o.waiters / 10, o.waiters / 2} {
			fmt.Fprintf(o.progress, "turns: %s, %d %s, %d processes\n", p.Name, p.Servers, p.Kind, processes)
			h, err := s.handOvers(ctx, p, processes, o.waiters/2, o.pairs/2)
			if err != nil {
				return r, fmt.Errorf("%s: %w", p.Name, err)
			}
			r.Turns = append(r.Turns, h)
		}
	}
	r.Machine = bench.ThisMachine("Redis "+s.redis[0].Version(), "ZooKeeper "+servers.ShortVersion(s.zookeeper.Version()), s.mysql.Flavor().String()+" "+s.mysql.Version())
	return r, nil
}

// pairs measures pairs with one Redis, with several, and with ZooKeeper, and the cost of a fencing
// token of package lock.
func (s *site) pairs(ctx context.Context, times int) (list []pair, err error) {
	for _, fits := range []func(p peer) bool{
		func(p peer) bool { return p.Servers == 1 && !p.Mint },
		func(p peer) bool { return p.Kind == inRedis && p.Servers > 1 },
		func(p peer) bool { return p.Kind == inZooKeeper },
		func(p peer) bool { return p.Mint },
	} {
		group := slices.DeleteFunc(peers(), func(p peer) bool { return !fits(p) })
		measured, err := s.turns(ctx, group, times)
		if err != nil {
			return nil, err
		}
		list = append(list, measured...)
	}
	return list, nil
}

// turns alternates peers, pair by pair, each time in another order.
func (s *site) turns(ctx context.Context, group []peer, times int) (list []pair, err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	took := make([][]time.Duration, len(group))
	processes := make([]process, len(group))
	for i, p := range group {
		one, end, openErr := s.open(p)
		if openErr != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, openErr)
		}
		defer func() { err = errors.Join(err, end()) }()
		processes[i] = one
	}
	for turn := range warm + times {
		for _, i := range rand.Perm(len(group)) {
			began := time.Now()
			unlock, err := processes[i].Lock(ctx, fmt.Sprintf("pair-%d", i))
			if err == nil {
				err = unlock(ctx)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", group[i].Name, err)
			}
			if turn >= warm {
				took[i] = append(took[i], time.Since(began))
			}
		}
	}
	best := median(took[0])
	for i := range group {
		best = min(best, median(took[i]))
	}
	for i, p := range group {
		m := median(took[i])
		list = append(list, pair{p.Name, p.Kind, p.Servers, m, float64(m) / float64(best)})
	}
	return list, nil
}

// handOvers has waiters in so many processes wait for a lock, and lets it go from one to the next.
// With turns, each has it for a section and waits again, until all together have had it so often.
func (s *site) handOvers(ctx context.Context, p peer, processes, waiters, turns int) (h handOver, err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	name := fmt.Sprintf("hand-over-%d-%d", processes, waiters)
	var all []process
	for range processes {
		one, end, openErr := s.open(p)
		if openErr != nil {
			return h, openErr
		}
		defer func() { err = errors.Join(err, end()) }()
		if err := s.greet(ctx, one); err != nil {
			return h, err
		}
		all = append(all, one)
	}
	unlock, err := all[0].Lock(ctx, name)
	if err != nil {
		return h, err
	}
	var (
		group    sync.WaitGroup
		mu       sync.Mutex
		released time.Time // by the last holder
		took     []time.Duration
		failed   error
	)
	had := make([]float64, waiters)
	turn := func(i int) (again bool) {
		next, err := all[i%processes].Lock(ctx, name)
		mu.Lock()
		if err == nil && len(took) < max(turns, waiters) {
			took = append(took, time.Since(released))
			had[i]++
		}
		mu.Unlock()
		if err == nil {
			if turns > 0 {
				_ = sleep.For(ctx, section)
			}
			mu.Lock()
			released = time.Now()
			mu.Unlock()
			err = next(ctx)
		}
		mu.Lock()
		defer mu.Unlock()
		failed = errors.Join(failed, err)
		return failed == nil && len(took) < turns
	}
	for i := range waiters {
		group.Go(func() {
			for turn(i) {
				continue
			}
		})
	}
	_ = sleep.For(ctx, rest)
	before, err := s.commands(ctx, p.Kind)
	sent := s.requests.Load()
	mu.Lock()
	released = time.Now()
	mu.Unlock()
	err = errors.Join(err, unlock(ctx))
	group.Wait()
	requests := s.requests.Load() - sent
	after, err2 := s.commands(ctx, p.Kind)
	if err := errors.Join(err, err2, failed); err != nil {
		return h, err
	}
	n, middle := float64(len(took)), median(had)
	return handOver{p.Name, p.Kind, p.Servers, processes, waiters, median(took), float64(requests) / n, float64(after-before) / n,
		middle, slices.Min(had) / max(middle, 1)}, nil
}

// greet has a process connect, which takes longer than the rest where it opens a session.
func (s *site) greet(ctx context.Context, one process) error {
	unlock, err := one.Lock(ctx, "greeting")
	if err != nil {
		return err
	}
	return unlock(ctx)
}

func median[T cmp.Ordered](list []T) T {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
