package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
)

// A schedule draws faults. Two streams run in parallel: one disturbs workers, and one disturbs
// everything else. Each has its own random numbers, so the order of its faults follows from the
// seed alone.
type schedule struct {
	stage *stage
	fleet *rig.Fleet
	count *counts

	onWorkers, onServers *rand.Rand
	deck                 []fault // what is left of the present one
	decks                int     // that were begun
	holds                float64 // factor on how long faults last
}

func newSchedule(seed uint64, s *stage, c *rig.Fleet, n *counts) *schedule {
	return &schedule{
		stage: s, fleet: c, count: n, holds: 1,
		onWorkers: rand.New(rand.NewPCG(seed, 1)), onServers: rand.New(rand.NewPCG(seed, 2)),
	}
}

// disturbWorkers kills, stops and freezes workers until ctx ends, and brings each back or another
// in its place.
func (s *schedule) disturbWorkers(ctx context.Context) error {
	for {
		gap, dice, who := rig.Between(s.onWorkers, 200*time.Millisecond, 1500*time.Millisecond), s.onWorkers.IntN(10), s.onWorkers.IntN(1000)
		rows := []int{1, 20, 100, 1000}[s.onWorkers.IntN(4)]
		freeze := rig.Between(s.onWorkers, claimTimeout/2, claimTimeout*3/2)
		if sleep.For(ctx, gap) != nil {
			return nil
		}
		m := s.fleet.Pick(who)
		if m == nil {
			return fmt.Errorf("there is no worker left")
		}
		if err := s.disturb(ctx, m, dice, freeze, rows); err != nil {
			return err
		}
	}
}

// disturb does one thing to a worker, to its end even when ctx ends.
func (s *schedule) disturb(ctx context.Context, m *rig.Member, dice int, freeze time.Duration, rows int) error {
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	switch {
	case dice < 8:
		s.count.WorkerKills.Add(1)
		if err := m.Signal(lasting, syscall.SIGKILL, true); err != nil {
			return err
		}
		return s.fleet.Start(rows)
	case dice < 9:
		s.count.WorkerStops.Add(1)
		if err := m.Signal(lasting, syscall.SIGTERM, true); err != nil {
			return fmt.Errorf("stop a worker: %w", err)
		}
		if code := m.ExitCode(); code != 0 {
			return fmt.Errorf("a worker that was told to stop ended with %d; its log ends with:\n%s", code, m.Tail())
		}
		return s.fleet.Start(rows)
	default:
		s.count.WorkerFreezes.Add(1)
		if err := m.Signal(lasting, syscall.SIGSTOP, false); err != nil {
			return err
		}
		_ = sleep.For(ctx, freeze) // a round that ends thaws it early
		s.fleet.Back(m)
		return m.Signal(lasting, syscall.SIGCONT, false)
	}
}

// disturbServers runs fault after fault until ctx ends, each kind once per deck.
func (s *schedule) disturbServers(ctx context.Context) error {
	for {
		if len(s.deck) == 0 {
			s.deck = append(s.deck, s.stage.deck()...)
			s.onServers.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
			s.decks++
		}
		next, gap := s.deck[0], rig.Between(s.onServers, 100*time.Millisecond, 800*time.Millisecond)
		hold := rig.Between(s.onServers, next.least, next.most)
		if sleep.For(ctx, gap) != nil {
			return nil
		}
		s.deck = s.deck[1:]
		// A fault runs to its end even if ctx ends, so that nothing stays half broken.
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
		err := next.play(lasting, s.stage, hold)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", next.name, err)
		}
		s.count.fault(next.name)
	}
}
