package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/migrations"
)

const migrateRows = 10_000_000

// errNothingToMeasure reports that only the baseline exists, or no file for these tables.
var errNothingToMeasure = errors.New("no migration after the baseline alters a table that can have millions of rows")

// An alteration is a migration that alters a table.
type alteration struct {
	file, table string
	apply       func(context.Context) error
}

// migrateRow has the columns of a row of a table, their values as SQL of a number n, and the column
// that a scan reads. Tables with at most a row per worker or migration stay as they are.
var migrateRow = map[string]struct{ columns, values, scanned string }{
	"cache_outbox":         {"entity, entity_id", "'product', n", "entity_id"},
	"cache_outbox_journal": {"worker, row_count, map_version, hashes, body", "'bench', 1, '0123456789ab', UNHEX(LPAD(HEX(n), 8, '0')), REPEAT(SHA2(n, 256), 2)", "body"},
	"cache_outbox_sweeps":  {"kind, name", "IF(n MOD 2, 'pattern', 'set'), CONCAT('zahraah:prod:category:', n, ':list:*')", "name"},
	"cache_outbox_delayed": {"entity, entity_id, due_at, first_id", "'product', n, UTC_TIMESTAMP(6) + INTERVAL n SECOND, n * 7919 MOD 10000019", "entity_id"},
	"cache_outbox_dead": {"entity, entity_id, created_at, first_id, reason, error, map_version",
		"'product', n, UTC_TIMESTAMP(6), n * 7919 MOD 10000019, 'unknown_entity', 'the map has no entity product', '0123456789ab'", "error"},
}

// migrate measures each migration after the baseline that alters a table that can have ten million
// rows, or only the migrations of the table cfg.Only.
func migrate(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for have := int64(schema.Version); have > schema.Baseline; {
		if _, err := migrations.Down(ctx, s.db, true); err != nil {
			return nil, err
		}
		if have, err = schema.Read(ctx, s.db); err != nil {
			return nil, err
		}
	}
	previews, err := migrations.Previews(ctx, s.db)
	if err != nil {
		return nil, err
	}
	p, err := migrations.Provider(s.db)
	if err != nil {
		return nil, err
	}
	var steps []alteration
	for _, step := range previews {
		steps = append(steps, alteration{step.File, step.Table, func(ctx context.Context) error { _, err := p.UpByOne(ctx); return err }})
	}
	return measure(ctx, cfg, s, steps)
}

// measure applies steps. The floor is a scan of the table. The report has the time and the floor of
// the slowest step.
func measure(ctx context.Context, cfg Config, s *shop, steps []alteration) (*Report, error) {
	big := func(step alteration) bool {
		return migrateRow[step.table].columns != "" && (cfg.Only == "" || cfg.Only == step.table)
	}
	if !slices.ContainsFunc(steps, big) {
		return nil, errNothingToMeasure
	}
	last := map[string]string{} // file that alters the table last
	for _, step := range steps {
		last[step.table] = step.file
	}
	rows := migrateRows / cfg.Scale
	r := &Report{Unit: "s", Runs: 1, Machine: s.machine(), Details: map[string]any{"rows": rows}}
	full := map[string]bool{}
	for _, step := range steps {
		if !big(step) {
			if err := step.apply(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if !full[step.table] {
			fmt.Fprintf(cfg.Progress, "migrate: writing %d rows to %s\n", rows, step.table)
			if err := fillTable(ctx, s.db, step.table, rows); err != nil {
				return nil, err
			}
			full[step.table] = true
		}
		floor, err := timed(func() error { return scanTable(ctx, s.db, step.table) })
		if err != nil {
			return nil, err
		}
		took, err := timed(func() error { return step.apply(ctx) })
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(cfg.Progress, "migrate: %s: %.3g s, a scan %.3g s\n", step.file, took, floor)
		r.Details[step.file] = pair{Ours: took, Floor: floor, Ratio: took / floor, Unit: "s"}
		if took > r.Ours {
			r.Ours, r.Floor = took, floor
		}
		if last[step.table] == step.file {
			if _, err := s.db.ExecContext(ctx, "TRUNCATE TABLE "+step.table); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// fillTable inserts rows, up to 100,000 per statement, and leaves them out of the binary log, which
// would double what the disk needs.
func fillTable(ctx context.Context, db *sql.DB, table string, rows int) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the pool's
	if _, err := conn.ExecContext(ctx, "SET SESSION sql_log_bin = 0"); err != nil {
		return err
	}
	const part = 100_000
	row := migrateRow[table]
	for from := 0; from < rows; from += part {
		stmt := fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM (SELECT %d + a.n + 1000 * b.n AS n FROM %s AS a JOIN %[5]s AS b WHERE b.n < %d) AS list WHERE n < %d`,
			table, row.columns, row.values, from, thousand, part/1000, rows)
		if _, err := conn.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("fill %s: %w", table, err)
		}
	}
	_, err = conn.ExecContext(ctx, "SET SESSION sql_log_bin = 1")
	return err
}

// scanTable reads all rows of a table by its primary key.
func scanTable(ctx context.Context, db *sql.DB, table string) error {
	var bytes int64
	return db.QueryRowContext(ctx, "SELECT SUM(LENGTH("+migrateRow[table].scanned+")) FROM "+table+" FORCE INDEX (PRIMARY)").Scan(&bytes)
}
