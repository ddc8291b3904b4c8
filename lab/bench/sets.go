package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/unstale/unstale/protocol"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

const (
	setsWaiting = 20_000
	setMembers  = 3 // of each, all of them keys

	setsOfABatch = 500 // that the worker takes per transaction
)

func setName(i int) string    { return fmt.Sprintf("tag:%06d", i) }
func memberName(i int) string { return fmt.Sprintf("zahraah:prod:coupon:%07d", i) }

// sets measures index sets per second, from requests in MySQL to the journal, compared with a loop
// that does the same.
func sets(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := setsWaiting / cfg.Scale
	var ours, floor, gentle, listed []float64
	var waits setWaits
	memory := 0.0
	for run := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", run+1, cfg.Runs)
		took, err := (setsShop{s}).taken(ctx, n, (setsFloor{s}).drain)
		if err != nil {
			return nil, err
		}
		floor = append(floor, float64(n)/took)
		s.share = 1
		watch := watchMemory()
		took, err = (setsShop{s}).taken(ctx, n, (setsShop{s}).drain)
		memory = max(memory, watch.end())
		if err != nil {
			return nil, err
		}
		ours = append(ours, float64(n)/took)
		s.share = 0
		if took, err = (setsShop{s}).taken(ctx, n, func(ctx context.Context) error { return (setsShop{s}).patternBehind(ctx, &waits) }); err != nil {
			return nil, err
		}
		gentle = append(gentle, float64(n)/took)
		if took, err = (patternShop{s}).enumerated(ctx, n); err != nil {
			return nil, err
		}
		listed = append(listed, float64(n)/took)
	}
	fmt.Fprintln(cfg.Progress, "a scan among other names")
	scans, err := (patternShop{s}).scans(ctx, cfg.Runs, sweepKeys/cfg.Scale)
	if err != nil {
		return nil, err
	}
	return &Report{Ours: median(ours), Floor: median(floor), Unit: "sets/s", Machine: s.machine(), Details: map[string]any{
		"sets": n, "members": setMembers, "memory_mb": memory, "sets_per_s_at_the_default_budget": median(gentle),
		"pattern_waits_ms": median(waits.pattern), "pattern_waits_batches_at_most": waits.batches, "batch_ms": median(waits.batch),
		"enumerated_rows_per_s": median(listed), "scan_names": sweepKeys / cfg.Scale, "scan_seconds": median(scans), "sets_in_the_time_of_a_scan": median(ours) * median(scans),
	}}, nil
}

// A setsShop has index sets to unlink.
type setsShop struct{ shop *shop }

// taken requests sets that need no second sweep, and measures until they are gone.
func (b setsShop) taken(ctx context.Context, n int, by func(context.Context) error) (float64, error) {
	if err := b.fill(ctx, n); err != nil {
		return 0, err
	}
	took, err := timed(func() error { return by(ctx) })
	if err != nil {
		return 0, err
	}
	var waiting int
	if err := b.shop.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM cache_outbox_sweeps").Scan(&waiting); err != nil {
		return 0, err
	}
	for _, names := range []string{"tag:*", "*zahraah:*", protocol.SetPrefix + "*"} {
		left, err := b.shop.Keys(ctx, names).Result()
		if err == nil && (waiting > 0 || len(left) > 0) {
			err = fmt.Errorf("%d requests wait and %d names like %s are left", waiting, len(left), names)
		}
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}

func (b setsShop) fill(ctx context.Context, n int) error {
	if err := b.shop.fill(ctx, n*setMembers, memberName); err != nil {
		return err
	}
	const part = 2000
	for from := 0; from < n; from += part {
		pipe := b.shop.Pipeline()
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
		if _, err := b.shop.db.ExecContext(ctx, stmt, args...); err != nil {
			return err
		}
	}
	_, err := b.shop.db.ExecContext(ctx, "TRUNCATE TABLE cache_outbox_journal")
	return err
}

// drainSets has a worker do it.
func (b setsShop) drain(ctx context.Context) error {
	w, err := b.shop.newWorker("worker", couponMap, worker.Config{})
	if err != nil {
		return err
	}
	_, err = w.Drain(ctx)
	return err
}

// setWaits are the waits of patterns behind sets.
type setWaits struct {
	pattern []float64 // milliseconds from the request to the start of its scan
	batch   []float64 // milliseconds of a batch of sets
	batches int       // that began while a pattern waited, at most
}

// patternBehindSets has a worker do it, and requests a pattern when the second batch begins.
func (b setsShop) patternBehind(ctx context.Context, waits *setWaits) error {
	at, err := redisurl.Parse(b.shop.url, false)
	if err != nil {
		return err
	}
	begun := &beginnings{ask: func() error {
		_, err := b.shop.db.ExecContext(ctx, "INSERT INTO cache_outbox_sweeps (kind, name, requested_at) VALUES "+
			"('pattern','zahraah:prod:list:*',UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)")
		return err
	}}
	at.Dialer = begun.dial
	w, err := b.shop.newWorker("worker", couponMap, worker.Config{Redis: at})
	if err != nil {
		return err
	}
	if _, err := w.Drain(ctx); err != nil {
		return err
	}
	batches := 0
	for i, at := range begun.sets {
		if at.After(begun.request) && at.Before(begun.scan) {
			batches++
		}
		if i > 0 {
			waits.batch = append(waits.batch, at.Sub(begun.sets[i-1]).Seconds()*1e3)
		}
	}
	if begun.scan.IsZero() && len(begun.sets) > 1 {
		return errors.New("no scan began")
	}
	if len(begun.sets) < 2 { // of a small scale: there is nothing to wait for
		waits.pattern, waits.batch = append(waits.pattern, 0), append(waits.batch, 0)
		return nil
	}
	waits.pattern = append(waits.pattern, begun.scan.Sub(begun.request).Seconds()*1e3)
	waits.batches = max(waits.batches, batches)
	return nil
}

// beginnings are the times at which batches of sets and a scan began, by the commands of the
// worker.
type beginnings struct {
	ask func() error // requests a pattern

	mu            sync.Mutex
	sets          []time.Time
	scan, request time.Time
}

// dial connects through a proxy that parses the commands.
func (b *beginnings) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return overheard{conn, b}, nil
}

// An overheard connection passes each write to a function before it sends it.
type overheard struct {
	net.Conn
	begun *beginnings
}

func (o overheard) Write(p []byte) (int, error) {
	if err := o.begun.hear(p); err != nil {
		return 0, err
	}
	return o.Conn.Write(p)
}

// hear records beginnings, and requests the pattern with the second batch of sets. A batch begins
// with the sizes of its sets, and the name of the first set is known. A scan begins with a page of
// names.
func (b *beginnings) hear(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case bytes.Contains(p, []byte("\r\nscard\r\n")) && bytes.Contains(p, []byte(setName(len(b.sets)*setsOfABatch))):
		b.sets = append(b.sets, time.Now())
		if len(b.sets) == 2 {
			err := b.ask()
			b.request = time.Now()
			return err
		}
	case b.scan.IsZero() && bytes.Contains(p, []byte("\r\nscan\r\n")):
		b.scan = time.Now()
	}
	return nil
}
