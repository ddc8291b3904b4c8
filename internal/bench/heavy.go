package bench

import (
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/fleet"
	"github.com/unstale/unstale/internal/sleep"
)

const (
	heavyRows   = 100
	heavyValues = 9_000 // of each
	lightRows   = 11_000
	heavyLimit  = 10 * time.Minute // of one run
)

// A heavyKind is one way for a row to be heavy within the limits of its map.
type heavyKind struct {
	name string
	// of the map: the entity "heavy", with the values of v
	entity string
	// shared is set where all heavy rows name the same values.
	shared bool
	// bytes is how long a value is at least.
	bytes int
	// pairs is set where a row gives two lists, which make a million names: as many as a map may allow.
	pairs bool
}

// manyTimes makes names of 1.7 KB of values of 106 bytes: 16 MB a row, as much as one may have.
const manyTimes = "{v}:{v}:{v}:{v}:{v}:{v}:{v}:{v}:{v}:{v}:{v}:{v}:{v}:{v}:{v}:{v}"

var heavyKinds = []heavyKind{
	{name: "patterns", entity: `params: [v], patterns: ["shop:list:{v}:*"]`},
	{name: "same_patterns", entity: `params: [v], patterns: ["shop:list:{v}:*"]`, shared: true},
	{name: "keys", entity: `params: [v], keys: ["shop:item:{v}"]`},
	{name: "held_keys", entity: `params: [v], keys: ["shop:item:{v}"], hold: 5s`},
	{name: "sets", entity: `params: [v], sets: ["shop:set:{v}"]`},
	{name: "tags", entity: `params: [v], tags: ["item-{v}"]`},
	{name: "repeats", entity: `params: [v], keys: ["shop:item:{v}"], repeat: [1h, 2h, 3h, 4h, 5h, 6h, 7h, 8h, 9h, 10h]`},
	{name: "long_keys", entity: `params: [v], keys: ["shop:item:` + manyTimes + `"]`, bytes: 100},
	{name: "long_patterns", entity: `params: [v], patterns: ["shop:item:` + manyTimes + `:*"]`, bytes: 100},
	{name: "million_keys", entity: `params: [v, w], keys: ["i:{v}:{w}"]`, pairs: true},
	{name: "million_patterns", entity: `params: [v, w], patterns: ["shop:item:{v}:{w}:*"]`, pairs: true},
}

func (k heavyKind) mapText() string {
	return "version: 1\nlimits: {params: 2MiB, keys_per_row: 1000000}\nentities:\n  coupon: {keys: [\"zahraah:prod:coupon:{id}\"]}\n  heavy: {" + k.entity + "}\n"
}

// row is a heavy row, whose values no other one has unless they are shared.
func (k heavyKind) row(i int) (entity, id string, params any) {
	if k.shared {
		i = 0
	}
	list := func(from, n int) string {
		var b strings.Builder
		for v := range n {
			if b.WriteByte(','); v == 0 {
				b.Reset()
			}
			text := fmt.Sprintf("%x", sha512.Sum512([]byte(strconv.Itoa(from+v)))) // which nothing compresses
			fmt.Fprintf(&b, `"%d%s"`, from+v, text[:k.bytes])
		}
		return "[" + b.String() + "]"
	}
	if k.pairs {
		return "heavy", strconv.Itoa(i), `{"v":` + list(1000*i, 1000) + `,"w":` + list(0, 1000) + `}`
	}
	return "heavy", strconv.Itoa(i), `{"v":` + list(100_000+i*heavyValues, heavyValues) + `}`
}

// A heavyRun is what came of one fill of the outbox.
type heavyRun struct {
	light, all, memory float64 // seconds, seconds, MB
}

// heavy measures how long light rows wait behind heavy ones that are within the limits of the map, and the memory of a worker's
// process. The floor is what they may wait: twice as long as behind as many light rows, and one heavy row's own time.
func heavy(ctx context.Context, cfg Config) (r *Report, err error) {
	if cfg.Binary == "" {
		return nil, errors.New("no program is given to measure")
	}
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	n := max(heavyRows/cfg.Scale, 2)
	details := map[string]any{"heavy_rows": n, "values_of_each": heavyValues, "light_rows": lightRows / cfg.Scale}
	var ours, floor []float64
	for _, kind := range heavyKinds {
		if cfg.Only != kind.name && (cfg.Only != "" || kind.pairs) {
			continue
		}
		var waits, bounds []float64
		memory := 0.0
		for run := range cfg.Runs {
			fmt.Fprintf(cfg.Progress, "%s: run %d of %d\n", kind.name, run+1, cfg.Runs)
			var runs [3]heavyRun
			for i, heavies := range [3]int{0, 1, n} {
				if runs[i], err = s.behind(ctx, cfg, kind, n, heavies); err != nil {
					return nil, fmt.Errorf("%s: %w", kind.name, err)
				}
				fmt.Fprintf(cfg.Progress, "  %d heavy: light rows gone after %.3f s, all after %.3f s, %.0f MB\n", heavies, runs[i].light, runs[i].all, runs[i].memory)
			}
			alone, one, many := runs[0], runs[1], runs[2]
			waits, bounds = append(waits, many.light), append(bounds, 2*alone.light+max(one.all-alone.all, 0))
			memory = max(memory, many.memory)
		}
		details[kind.name+"_seconds"] = median(waits)
		details[kind.name+"_bound_seconds"] = median(bounds)
		details[kind.name+"_memory_mb"] = memory
		if ours == nil {
			ours, floor = waits, bounds
		}
	}
	return &Report{Ours: median(ours), Floor: median(floor), Unit: "s", Machine: s.machine(), Details: details}, nil
}

// behind commits the rows in one transaction while a worker waits for work, the heavy ones first, and measures until the
// light ones are gone, and until all are. Where some are not heavy, as many light ones take their place.
func (s *shop) behind(ctx context.Context, cfg Config, kind heavyKind, first, heavies int) (run heavyRun, err error) {
	ctx, cancel := context.WithTimeout(ctx, heavyLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "unstale-bench-")
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	workers, err := fleet.New(cfg.Binary, dir, kind.mapText(), []string{"MYSQL_DSN=" + s.dsn, "REDIS_URL=" + s.url})
	if err != nil {
		return run, err
	}
	if err := workers.Start(floorBatch); err != nil {
		return run, err
	}
	defer workers.KillAll()
	worker := workers.Pick(0)
	workers.Back(worker) // which ends with the fleet
	if err := s.until(ctx, workers, "SELECT COUNT(*) = 0 FROM cache_outbox_workers WHERE state = 'working' AND seen_at > UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"); err != nil {
		return run, fmt.Errorf("%w; the log of the worker ends with:\n%s", err, worker.Tail())
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return run, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after Commit
	for i := range heavies {
		entity, id, params := kind.row(i)
		if _, err := tx.ExecContext(ctx, "INSERT INTO cache_outbox (entity, entity_id, params) VALUES (?,?,?)", entity, id, params); err != nil {
			return run, err
		}
	}
	rows := lightRows/cfg.Scale + first - heavies
	for from := 0; from < rows; from += 1000 {
		part := min(1000, rows-from)
		var args []any
		for i := range part {
			entity, id, _ := coupon(from + i)
			args = append(args, entity, id)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO cache_outbox (entity, entity_id) VALUES "+strings.Repeat("(?,?),", part-1)+"(?,?)", args...); err != nil {
			return run, err
		}
	}
	began := time.Now()
	if err := tx.Commit(); err != nil {
		return run, err
	}
	if err := s.until(ctx, workers, "SELECT EXISTS (SELECT 1 FROM cache_outbox WHERE entity = 'coupon')"); err != nil {
		return run, fmt.Errorf("%w; the log of the worker ends with:\n%s", err, worker.Tail())
	}
	run.light = time.Since(began).Seconds()
	if err := s.until(ctx, workers, "SELECT EXISTS (SELECT 1 FROM cache_outbox)"); err != nil {
		return run, fmt.Errorf("%w; the log of the worker ends with:\n%s", err, worker.Tail())
	}
	run.all = time.Since(began).Seconds()
	memory, err := worker.PeakMemory()
	if err != nil {
		return run, err
	}
	run.memory = float64(memory) / 1e6
	workers.KillAll()
	for _, table := range []string{"delayed", "sweeps", "journal", "workers"} {
		if _, err := s.db.ExecContext(ctx, "TRUNCATE TABLE cache_outbox_"+table); err != nil {
			return run, err
		}
	}
	return run, s.Client.FlushDB(ctx).Err()
}

// until asks until the answer is no, or a worker has ended.
func (s *shop) until(ctx context.Context, workers *fleet.Fleet, query string) error {
	for {
		if err := workers.Alive(); err != nil {
			return err
		}
		var goesOn bool
		if err := s.db.QueryRowContext(ctx, query).Scan(&goesOn); err != nil {
			return err
		}
		if !goesOn {
			return nil
		}
		if err := sleep.For(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}
