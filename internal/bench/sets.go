package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/worker"
)

const (
	setsWaiting = 20_000
	setMembers  = 3 // of each, all of them keys
)

func setName(i int) string    { return fmt.Sprintf("tag:%06d", i) }
func memberName(i int) string { return fmt.Sprintf("zahraah:prod:coupon:%07d", i) }

// sets measures index sets per second, from requests in MySQL to the journal, beside a loop that does the same.
func sets(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := setsWaiting / cfg.Scale
	var ours, floor, gentle []float64
	var waits setWaits
	memory := 0.0
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", run+1, cfg.Runs)
		took, err := s.taken(ctx, n, s.floorSets)
		if err != nil {
			return nil, err
		}
		floor = append(floor, float64(n)/took)
		s.share = 1
		watch := watchMemory()
		took, err = s.taken(ctx, n, s.drainSets)
		memory = max(memory, watch.end())
		if err != nil {
			return nil, err
		}
		ours = append(ours, float64(n)/took)
		s.share = 0
		if took, err = s.taken(ctx, n, func(ctx context.Context) error { return s.patternBehindSets(ctx, &waits) }); err != nil {
			return nil, err
		}
		gentle = append(gentle, float64(n)/took)
	}
	return &Report{Ours: median(ours), Floor: median(floor), Unit: "sets/s", Machine: s.machine(), Details: map[string]any{
		"sets": n, "members": setMembers, "memory_mb": memory, "sets_per_s_at_the_default_budget": median(gentle),
		"pattern_waits_ms": median(waits.pattern), "pattern_waits_batches_at_most": waits.batches, "batch_ms": median(waits.batch),
	}}, nil
}

// taken requests sets that need no settling pass, and measures until they are gone.
func (s *shop) taken(ctx context.Context, n int, by func(context.Context) error) (float64, error) {
	if err := s.fillSets(ctx, n); err != nil {
		return 0, err
	}
	took, err := timed(func() error { return by(ctx) })
	if err != nil {
		return 0, err
	}
	var waiting int
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM cache_outbox_sweeps").Scan(&waiting); err != nil {
		return 0, err
	}
	for _, names := range []string{"tag:*", "*zahraah:*", "unstale:set:*"} {
		left, err := s.Keys(ctx, names).Result()
		if err == nil && (waiting > 0 || len(left) > 0) {
			err = fmt.Errorf("%d requests wait and %d names like %s are left", waiting, len(left), names)
		}
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}

func (s *shop) fillSets(ctx context.Context, n int) error {
	if err := s.fill(ctx, n*setMembers, memberName); err != nil {
		return err
	}
	const part = 2000
	for from := 0; from < n; from += part {
		pipe := s.Pipeline()
		var args []any
		for i := from; i < min(from+part, n); i++ {
			for m := range setMembers {
				pipe.SAdd(ctx, setName(i), memberName(i*setMembers+m))
			}
			args = append(args, setName(i))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		row := "('set',?,UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)"
		stmt := "INSERT INTO cache_outbox_sweeps (kind, name, requested_at) VALUES " + strings.Repeat(row+",", len(args)-1) + row
		if _, err := s.db.ExecContext(ctx, stmt, args...); err != nil {
			return err
		}
	}
	_, err := s.db.ExecContext(ctx, "TRUNCATE TABLE cache_outbox_journal")
	return err
}

// drainSets has a worker do it.
func (s *shop) drainSets(ctx context.Context) error {
	h, err := s.hire("worker", couponMap, worker.Config{})
	if err != nil {
		return err
	}
	_, err = h.Drain(ctx)
	return errors.Join(err, h.dismiss())
}

// setWaits are what patterns behind sets waited.
type setWaits struct {
	pattern []float64 // milliseconds from the request to the start of its pass
	batch   []float64 // milliseconds of a batch of sets
	batches int       // that began while a pattern waited, at most
}

// patternBehindSets has a worker do it, and requests a pattern when the second batch begins.
func (s *shop) patternBehindSets(ctx context.Context, waits *setWaits) error {
	begun := &beginnings{}
	request := func() error {
		_, err := s.db.ExecContext(ctx, "INSERT INTO cache_outbox_sweeps (kind, name, requested_at) VALUES "+
			"('pattern','zahraah:prod:list:*',UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)")
		begun.request = time.Now()
		return err
	}
	h, err := s.hireWith("worker", couponMap, worker.Config{}, func(k *keyspace.Keyspace) worker.Redis {
		return noting{k, begun, request}
	})
	if err != nil {
		return err
	}
	_, err = h.Drain(ctx)
	if err = errors.Join(err, h.dismiss()); err != nil {
		return err
	}
	batches := 0
	for i, at := range begun.sets {
		if at.After(begun.request) && at.Before(begun.pass) {
			batches++
		}
		if i > 0 {
			waits.batch = append(waits.batch, at.Sub(begun.sets[i-1]).Seconds()*1e3)
		}
	}
	if begun.pass.IsZero() && len(begun.sets) > 1 {
		return errors.New("no pass began")
	}
	if len(begun.sets) < 2 { // of a small scale: there is nothing to wait for
		waits.pattern, waits.batch = append(waits.pattern, 0), append(waits.batch, 0)
		return nil
	}
	waits.pattern = append(waits.pattern, begun.pass.Sub(begun.request).Seconds()*1e3)
	waits.batches = max(waits.batches, batches)
	return nil
}

// beginnings are when batches of sets and a pass began.
type beginnings struct {
	mu            sync.Mutex
	sets          []time.Time
	pass, request time.Time
}

// noting notes beginnings, and calls request with the second batch of sets.
type noting struct {
	worker.Redis
	begun   *beginnings
	request func() error
}

func (n noting) TakeSets(ctx context.Context, requests []keyspace.SetRequest, gone func([]string) error) (keyspace.TakenSets, error) {
	n.begun.mu.Lock()
	n.begun.sets = append(n.begun.sets, time.Now())
	if len(n.begun.sets) == 2 {
		if err := n.request(); err != nil {
			n.begun.mu.Unlock()
			return keyspace.TakenSets{}, err
		}
	}
	n.begun.mu.Unlock()
	return n.Redis.TakeSets(ctx, requests, gone)
}

func (n noting) Sweep(ctx context.Context, patterns []string, watch func(keyspace.Progress)) (keyspace.SweepResult, error) {
	n.begun.mu.Lock()
	n.begun.pass = time.Now()
	n.begun.mu.Unlock()
	return n.Redis.Sweep(ctx, patterns, watch)
}
