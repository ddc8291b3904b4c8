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

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
)

const (
	heavyRows   = 100
	heavyValues = 9_000 // of each
	lightRows   = 11_000
	heavyLimit  = 10 * time.Minute // of one run
	// mostNames and mostParams are the largest limits that a map may set.
	mostNames  = 50_000
	mostParams = 2 << 20
)

// A heavyKind is one way for a row to be heavy within the limits of its map.
type heavyKind struct {
	name string
	// entity is the definition of the entity "heavy" in the map, with the values of v.
	entity string
	// shared is set if all heavy rows have the same values.
	shared bool
	// bytes is the least length of a value.
	bytes int
	// most is set if a row is as heavy as the largest limits of a map allow.
	most bool
	// lookup finds the values of the parameter "found".
	lookup string
	// list is how the row gets its values. Nil: the row gives heavyValues of them.
	list func(k heavyKind, i int) string
}

// manyTimes makes names of 860 bytes from values of 106 bytes: 8 MB per row, which is the limit.
const manyTimes = "{v}:{v}:{v}:{v}:{v}:{v}:{v}:{v}"

// Lookups that find mostNames values of one ID, the same with values of 70 bytes, one value for
// each of as many questions, and 30 times as many values as a row may have.
const (
	foundOf      = `by: [id], sql: "SELECT i.n, CONCAT(i.n, '-', v.n) FROM heavy_numbers AS i, heavy_numbers AS v WHERE i.n IN (?)`
	foundLong    = `by: [id], sql: "SELECT i.n, CONCAT(i.n, '-', v.n, SHA2(v.n, 256)) FROM heavy_numbers AS i, heavy_numbers AS v WHERE i.n IN (?)"`
	foundByMany  = `by: [v, w], sql: "SELECT v.n, w.n, CONCAT(v.n, '-', w.n) FROM heavy_numbers AS v, heavy_numbers AS w WHERE (v.n, w.n) IN (?)"`
	foundTooMany = `by: [id], sql: "SELECT i.n, CONCAT(i.n, '-', v.n, '-', t.n) FROM heavy_numbers AS i, heavy_numbers AS v, heavy_numbers AS t WHERE i.n IN (?) AND t.n < 30"`
)

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
	{name: "most_keys", entity: `params: [v, w], keys: ["i:{v}:{w}"]`, most: true, list: heavyPairs},
	{name: "most_held_keys", entity: `params: [v, w], keys: ["i:{v}:{w}"], hold: 5s`, most: true, list: heavyPairs},
	{name: "most_patterns", entity: `params: [v, w], patterns: ["shop:item:{v}:{w}:*"]`, most: true, list: heavyPairs},
	{name: "most_sets", entity: `params: [v, w], sets: ["shop:set:{v}:{w}"]`, most: true, list: heavyPairs},
	{name: "most_params", entity: `keys: ["shop:item:{id}"]`, most: true, list: heavyDigits},
	{name: "found_keys", entity: `params: [found], keys: ["shop:item:{found}"]`, lookup: foundOf + `"`, most: true, list: noParams},
	{name: "found_patterns", entity: `params: [found], patterns: ["shop:item:{found}:*"]`, lookup: foundOf + `"`, most: true, list: noParams},
	{name: "found_long", entity: `params: [found], keys: ["shop:item:{found}:{found}"]`, lookup: foundLong, most: true, list: noParams},
	{name: "found_long_patterns", entity: `params: [found], patterns: ["shop:item:{found}:{found}:*"]`, lookup: foundLong, most: true, list: noParams},
	{name: "found_by_many", entity: `params: [v, w, found], keys: ["shop:item:{found}"]`, lookup: foundByMany, most: true, list: heavyPairs},
	{name: "found_too_many", entity: `params: [found], keys: ["shop:item:{found}"]`, lookup: foundTooMany, most: true, list: noParams},
}

// mapText returns a map with the largest limits.
func (k heavyKind) mapText() string {
	params := ""
	if k.lookup != "" {
		params = "params: {found: {lookup: {" + k.lookup + "}}}\n"
	}
	return fmt.Sprintf("version: 1\nlimits: {params: %d, keys_per_row: %d}\n%sentities:\n  coupon: {keys: [\"zahraah:prod:coupon:{id}\"]}\n  heavy: {%s}\n",
		mostParams, mostNames, params, k.entity)
}

// row returns a heavy row, whose values no other row has unless they are shared.
func (k heavyKind) row(i int) (entity, id string, params any) {
	switch {
	case k.list != nil:
		if text := k.list(k, i); text != "" {
			params = text
		}
	case k.shared:
		params = `{"v":` + k.values(100_000, heavyValues) + `}`
	default:
		params = `{"v":` + k.values(100_000+i*heavyValues, heavyValues) + `}`
	}
	return "heavy", strconv.Itoa(i), params
}

// values returns a list of n values, which do not compress if they are long.
func (k heavyKind) values(from, n int) string {
	list := make([]string, n)
	for i := range list {
		text := fmt.Sprintf("%x", sha512.Sum512([]byte(strconv.Itoa(from+i))))
		list[i] = fmt.Sprintf(`"%d%s"`, from+i, text[:k.bytes])
	}
	return "[" + strings.Join(list, ",") + "]"
}

// heavyPairs returns two lists that make mostNames combinations.
func heavyPairs(k heavyKind, i int) string {
	return `{"v":` + k.values(mostNames/1000*i, mostNames/1000) + `,"w":` + k.values(0, 1000) + `}`
}

// heavyDigits returns as many values as fit the largest parameters.
func heavyDigits(heavyKind, int) string {
	return `{"v":[` + strings.Repeat("1,", mostParams/2-10) + `1]}`
}

// noParams leaves the values to a lookup.
func noParams(heavyKind, int) string { return "" }

// A heavyShop has heavy rows to process.
type heavyShop struct{ shop *shop }

// makeNumbers creates the table that lookups read.
func (b heavyShop) makeNumbers(ctx context.Context) error {
	if _, err := b.shop.db.ExecContext(ctx, "CREATE TABLE heavy_numbers (n INT PRIMARY KEY)"); err != nil {
		return err
	}
	const digits = "(SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"
	_, err := b.shop.db.ExecContext(ctx, "INSERT INTO heavy_numbers SELECT a.d + 10*b.d + 100*c.d + 1000*d.d + 10000*e.d AS n FROM "+digits+" AS a, "+digits+" AS b, "+digits+" AS c, "+digits+" AS d, "+digits+" AS e HAVING n < ?", mostNames)
	return err
}

// A heavyRun is the result of one fill of the outbox.
type heavyRun struct {
	light, all, memory float64 // seconds, seconds, MB
}

// heavy measures how long light rows wait behind heavy ones that are within the limits of the map,
// and the memory of a worker process. The floor is the longest wait allowed: twice the wait behind
// as many light rows, plus the time of one heavy row.
func heavy(ctx context.Context, cfg Config) (r *Report, err error) {
	if cfg.Binary == "" {
		return nil, errors.New("no program is given to measure")
	}
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := (heavyShop{s}).makeNumbers(ctx); err != nil {
		return nil, err
	}
	n := max(heavyRows/cfg.Scale, 2)
	details := map[string]any{"heavy_rows": n, "values_of_each": heavyValues, "light_rows": lightRows / cfg.Scale}
	var ours, floor []float64
	for _, kind := range heavyKinds {
		if cfg.Only != kind.name && (cfg.Only != "" || kind.most) {
			continue
		}
		var waits, bounds []float64
		memory := 0.0
		for run := range cfg.Runs {
			fmt.Fprintf(cfg.Progress, "%s: run %d of %d\n", kind.name, run+1, cfg.Runs)
			var runs [3]heavyRun
			for i, heavies := range [3]int{0, 1, n} {
				if runs[i], err = (heavyShop{s}).behind(ctx, cfg, kind, n, heavies); err != nil {
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

// behind commits the rows in one transaction while a worker waits for work, the heavy ones first.
// It measures until the light ones are gone, and until all are. Light rows replace heavy ones that
// the kind does not have.
func (b heavyShop) behind(ctx context.Context, cfg Config, kind heavyKind, first, heavies int) (run heavyRun, err error) {
	ctx, cancel := context.WithTimeout(ctx, heavyLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "unstale-bench-")
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	workers, err := rig.New(cfg.Binary, dir, kind.mapText(), []string{"MYSQL_DSN=" + b.shop.dsn, "REDIS_URL=" + b.shop.url})
	if err != nil {
		return run, err
	}
	if err := workers.Start(floorBatch); err != nil {
		return run, err
	}
	defer workers.KillAll()
	worker := workers.Pick(0)
	workers.Back(worker) // which ends with the fleet
	if err := b.until(ctx, workers, "SELECT COUNT(*) = 0 FROM cache_outbox_workers WHERE state = 'working' AND seen_at > UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"); err != nil {
		return run, fmt.Errorf("%w; the log of the worker ends with:\n%s", err, worker.Tail())
	}
	tx, err := b.shop.db.BeginTx(ctx, nil)
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
	if err := b.until(ctx, workers, "SELECT EXISTS (SELECT 1 FROM cache_outbox WHERE entity = 'coupon')"); err != nil {
		return run, fmt.Errorf("%w; the log of the worker ends with:\n%s", err, worker.Tail())
	}
	run.light = time.Since(began).Seconds()
	if err := b.until(ctx, workers, "SELECT EXISTS (SELECT 1 FROM cache_outbox)"); err != nil {
		return run, fmt.Errorf("%w; the log of the worker ends with:\n%s", err, worker.Tail())
	}
	run.all = time.Since(began).Seconds()
	memory, err := worker.PeakMemory()
	if err != nil {
		return run, err
	}
	run.memory = float64(memory) / 1e6
	workers.KillAll()
	for _, table := range []string{"delayed", "sweeps", "journal", "workers", "dead"} {
		if _, err := b.shop.db.ExecContext(ctx, "TRUNCATE TABLE cache_outbox_"+table); err != nil {
			return run, err
		}
	}
	return run, b.shop.Client.FlushDB(ctx).Err()
}

// until asks until the answer is no, or a worker has ended.
func (b heavyShop) until(ctx context.Context, workers *rig.Fleet, query string) error {
	for {
		if err := workers.Alive(); err != nil {
			return err
		}
		var goesOn bool
		if err := b.shop.db.QueryRowContext(ctx, query).Scan(&goesOn); err != nil {
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
