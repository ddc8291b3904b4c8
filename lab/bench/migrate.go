package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/unstale/unstale/migrations"
)

const migrateRows = 10_000_000

// migrateRow is what a row of a table consists of, as SQL of a number n. Tables that have at most a
// row per worker or per migration stay as they are.
var migrateRow = map[string]struct{ columns, values string }{
	"cache_outbox_journal": {"worker, row_count, map_version, hashes, body", "'bench', 1, '0123456789ab', UNHEX(LPAD(HEX(n), 8, '0')), REPEAT(SHA2(n, 256), 2)"},
	"cache_outbox_sweeps":  {"kind, name", "IF(n MOD 2, 'pattern', 'set'), CONCAT('zahraah:prod:category:', n, ':list:*')"},
	"cache_outbox_delayed": {"entity, entity_id, due_at, first_id", "'product', n, UTC_TIMESTAMP(6) + INTERVAL n SECOND, n * 7919 MOD 10000019"},
	"cache_outbox_dead": {"entity, entity_id, created_at, first_id, reason, error, map_version",
		"'product', n, UTC_TIMESTAMP(6), n * 7919 MOD 10000019, 'unknown_entity', 'the map has no entity product', '0123456789ab'"},
}

// migrate measures each migration that alters a table that can have ten million rows, or only those
// of the table cfg.Only. The floor is a scan of the table. Ours and the floor are those of the slowest migration.
func migrate(ctx context.Context, cfg Config) (r *Report, err error) {
	s, err := openShop(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for { // to an empty schema
		done, err := migrations.Down(ctx, s.db, true)
		if err != nil {
			return nil, err
		}
		if done == nil {
			break
		}
	}
	steps, err := migrations.Previews(ctx, s.db)
	if err != nil {
		return nil, err
	}
	p, err := migrations.Provider(s.db)
	if err != nil {
		return nil, err
	}
	last := map[string]int64{} // version that alters the table last
	for _, step := range steps {
		last[step.Table] = step.Version
	}
	rows := migrateRows / cfg.Scale
	r = &Report{Unit: "s", Runs: 1, Machine: s.machine(), Details: map[string]any{"rows": rows}}
	full := map[string]bool{}
	for _, step := range steps {
		big := migrateRow[step.Table].columns != "" && (cfg.Only == "" || cfg.Only == step.Table)
		if big && !full[step.Table] {
			fmt.Fprintf(cfg.Progress, "migrate: writing %d rows to %s\n", rows, step.Table)
			if err := fillTable(ctx, s.db, step.Table, rows); err != nil {
				return nil, err
			}
			full[step.Table] = true
		}
		floor := 0.0
		if big {
			if floor, err = timed(func() error { return scanTable(ctx, s.db, step.Table) }); err != nil {
				return nil, err
			}
		}
		took, err := timed(func() error { _, err := p.UpByOne(ctx); return err })
		if err != nil {
			return nil, err
		}
		if !big {
			continue
		}
		fmt.Fprintf(cfg.Progress, "migrate: %s: %.3g s, a scan %.3g s\n", step.File, took, floor)
		r.Details[step.File] = pair{Ours: took, Floor: floor, Ratio: took / floor, Unit: "s"}
		if took > r.Ours {
			r.Ours, r.Floor = took, floor
		}
		if last[step.Table] == step.Version {
			if _, err := s.db.ExecContext(ctx, "TRUNCATE TABLE "+step.Table); err != nil {
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
		digits := "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
		stmt := fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM (SELECT %d + a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS n
FROM %s a JOIN %[5]s b JOIN %[5]s c JOIN %[5]s e JOIN %[5]s f) numbers WHERE n < %d`, table, row.columns, row.values, from, digits, rows)
		if _, err := conn.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("fill %s: %w", table, err)
		}
	}
	_, err = conn.ExecContext(ctx, "SET SESSION sql_log_bin = 1")
	return err
}

// scanTable reads all rows of a table by its primary key.
func scanTable(ctx context.Context, db *sql.DB, table string) error {
	columns := map[string]string{"cache_outbox_journal": "body", "cache_outbox_sweeps": "name", "cache_outbox_delayed": "entity_id", "cache_outbox_dead": "error"}
	var bytes int64
	return db.QueryRowContext(ctx, "SELECT SUM(LENGTH("+columns[table]+")) FROM "+table+" FORCE INDEX (PRIMARY)").Scan(&bytes)
}
