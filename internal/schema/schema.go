// Package schema says which version of the outbox's tables this code is for, and which one a
// database has. Package migrations changes it; a worker only looks, and so links nothing that
// migrates.
//
// It also has what changes a schema beside a running shop: processes take turns, and a statement
// that has to wait for a table lets through what has queued behind it.
package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Version is that of the last file of package migrations.
const Version = 32

// Baseline is the version of the first file of package migrations. It creates all tables.
const Baseline = 32

// Table is where goose keeps the version. It is not goose's default name, so that an application
// which migrates its own tables with goose keeps a version of its own.
const Table = "cache_outbox_version"

// OwnTriggers is a condition on information_schema.triggers. It selects the triggers of "unstale
// capture" by their names, and copies with other names by their text. For example, gh-ost makes
// copies.
const OwnTriggers = `trigger_schema = DATABASE()
AND (CONVERT(trigger_name USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^unstale_(insert|update|delete)_[0-9a-f]{16}(_[0-9]+)?$'
OR action_statement LIKE 'BEGIN%IF NOT (CAST(@unstale\_capture AS BINARY) <=> ''off'') THEN%cache\_outbox%')`

// Err says that the database's schema is not the one that this binary was built for.
var Err = errors.New("schema does not match this binary")

// Steps is the last commit with the steps up to [Baseline], one file each.
const Steps = "0a7db312a0ab1d3d10afdd9b97a811c9246093be"

// ErrOlder says that the schema is older than [Baseline], and how to migrate it.
var ErrOlder = errors.New("only commit " + Steps + " has the steps between; with MYSQL_DSN set, run: " +
	"git clone https://github.com/unstale/unstale unstale-steps && git -C unstale-steps checkout " + Steps +
	" && go build -C unstale-steps -o bin/ ./cmd/unstale && unstale-steps/bin/unstale migrate up && unstale migrate up")

// Check returns an error that wraps [Err] and names the fix, unless this code may run on the
// schema. It may run on its own version, and on a newer one that declares so. It changes nothing: a
// database without the version table has version 0.
func Check(ctx context.Context, db *sql.DB) error {
	have, err := Read(ctx, db)
	switch {
	case err != nil:
		return err
	case have > 0 && have < Baseline:
		return RefuseOlder(ctx, db)
	case have < Version:
		return fmt.Errorf("%w: it has version %d, this binary needs %d; run `unstale migrate up`", Err, have, Version)
	}
	return mayRun(ctx, db, have)
}

// Contract: the dictionary, without a lock on rows. The first step made this column, and the last
// ones changed it.
const firstStepSQL = `SELECT COUNT(*) FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = 'cache_outbox' AND column_name = 'trace' AND is_nullable = 'NO'`

// RefuseOlder returns an error that wraps [Err] and [ErrOlder] if the schema is older than
// [Baseline], and not empty. It has version 0 if the first step was interrupted.
func RefuseOlder(ctx context.Context, db *sql.DB) error {
	have, err := Read(ctx, db)
	if err != nil || have >= Baseline {
		return err
	}
	interrupted := ""
	if have == 0 {
		var n int
		if err := db.QueryRowContext(ctx, firstStepSQL).Scan(&n); err != nil || n == 0 {
			return err
		}
		interrupted = " and a table of version 1"
	}
	return fmt.Errorf("%w: it has version %d%s, this binary needs %d; %w", Err, have, interrupted, Version, ErrOlder)
}

// RefuseNewer returns an error that wraps [Err] and names the fix if the schema is newer than this
// code and does not let it run. It is for a tool that may run before a migration: an older schema
// passes, unlike in [Check].
func RefuseNewer(ctx context.Context, db *sql.DB) error {
	have, err := Read(ctx, db)
	if err != nil {
		return err
	}
	return mayRun(ctx, db, have)
}

func mayRun(ctx context.Context, db *sql.DB, have int64) error {
	if have <= Version {
		return nil
	}
	oldest, err := Oldest(ctx, db)
	if err == nil && oldest > Version {
		err = fmt.Errorf("%w: it has version %d, which needs a binary of version %d or later, and this binary has %d; deploy the newer binary",
			Err, have, oldest, Version)
	}
	return err
}

// Contract: no lock, a handful of rows in goose's version table.
const oldestSQL = "SELECT COALESCE(MAX(oldest), 0) FROM " + Table + " WHERE is_applied"

// Oldest returns the version of the oldest code that may run on the schema. It declares it as
// package migrations describes.
func Oldest(ctx context.Context, db *sql.DB) (version int64, err error) {
	if err := db.QueryRowContext(ctx, oldestSQL).Scan(&version); err != nil {
		return 0, fmt.Errorf("read the oldest code that may run on the schema: %w", err)
	}
	return version, nil
}

// Contract: no lock, a handful of rows in goose's version table; goose appends a row for an up and
// deletes it for a down, so the highest applied one is the version.
const versionSQL = "SELECT COALESCE(MAX(version_id), 0) FROM " + Table + " WHERE is_applied"

// Read asks the table itself: the dictionary hides one that may not be read, and the schema would
// seem to be empty.
func Read(ctx context.Context, db *sql.DB) (version int64, err error) {
	err = db.QueryRowContext(ctx, versionSQL).Scan(&version)
	switch number := mysqlerr.Number(err); {
	case err == nil:
		return version, nil
	case number == mysqlerr.NoTable:
		return 0, nil
	case number == mysqlerr.NoRight:
		return 0, fmt.Errorf("read schema version: %w; if the tables are there, GRANT SELECT ON %s to this account, otherwise run `unstale migrate up` first",
			err, Table)
	}
	return 0, fmt.Errorf("read schema version: %w", err)
}

// Indexes are those that the migrations leave behind: table(columns).
var Indexes = strings.Fields(`
cache_outbox(id)
cache_outbox_audit(at) cache_outbox_audit(id)
cache_outbox_control(name)
cache_outbox_dead(died_at) cache_outbox_dead(first_id) cache_outbox_dead(id) cache_outbox_dead(reason)
cache_outbox_delayed(due_at) cache_outbox_delayed(first_id) cache_outbox_delayed(id)
cache_outbox_journal(epoch,beat) cache_outbox_journal(id) cache_outbox_journal(settled_at)
cache_outbox_locks(name)
cache_outbox_minutes(minute,worker)
cache_outbox_shadow(confirmed_at) cache_outbox_shadow(id)
cache_outbox_source(one)
cache_outbox_stale(id)
cache_outbox_summaries(bucket,last_id)
cache_outbox_sweeper(name)
cache_outbox_sweeps(first_high) cache_outbox_sweeps(id) cache_outbox_sweeps(kind)
cache_outbox_workers(id)`)

// Contract for all: the dictionary, without a lock on rows; it shows the tables and triggers to
// which the account has a right.
const (
	enginesSQL = `SELECT table_name, engine FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name LIKE 'cache\_outbox%'`
	indexesSQL = `SELECT table_name, GROUP_CONCAT(column_name ORDER BY seq_in_index) FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name LIKE 'cache\_outbox%' AND table_name <> '` + Table + `' GROUP BY table_name, index_name`
	namingSQL = `SELECT CONCAT(IF(trigger_schema = DATABASE(), '', CONCAT(trigger_schema, '.')), trigger_name, ' on ', event_object_table),
IF(trigger_schema = DATABASE(), '', action_statement), DATABASE() FROM information_schema.triggers
WHERE LOWER(CONVERT(action_statement USING utf8mb4)) LIKE '%cache\_outbox%' AND NOT (trigger_schema = DATABASE() AND event_object_table LIKE 'cache\_outbox%')
ORDER BY trigger_schema = DATABASE() DESC, trigger_name`
	triggersSQL = `SELECT event_object_table, trigger_name FROM information_schema.triggers
WHERE trigger_schema = DATABASE() AND event_object_table LIKE 'cache\_outbox%' AND NOT (action_timing = 'BEFORE' AND event_manipulation = 'INSERT'
AND trigger_name = CONCAT(event_object_table, '_ids') AND REGEXP_REPLACE(action_statement, '[[:space:]]+', ' ') = ?)`
)

// A Deviation is by what a database's tables differ from those that the migrations made.
type Deviation struct{ What, Cure string }

// Deviations returns those of the tables that the account sees, whose version is that of this code:
// engines without transactions, indexes that are missing, and triggers except for [RefuseIDs].
func Deviations(ctx context.Context, db *sql.DB) (list []Deviation, err error) {
	engines, err := pairs(ctx, db, enginesSQL)
	if err != nil {
		return nil, err
	}
	for _, t := range engines {
		if t[1] != "InnoDB" {
			list = append(list, Deviation{"table " + t[0] + " has the engine " + t[1] + ", which has no transactions", "ALTER TABLE " + t[0] + " ENGINE = InnoDB"})
		}
	}
	have, err := ReadIndexes(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, index := range Indexes {
		table, columns, _ := strings.Cut(index, "(")
		seen := slices.ContainsFunc(engines, func(t [2]string) bool { return t[0] == table })
		if seen && !slices.Contains(have, index) {
			list = append(list, Deviation{"table " + table + " lacks the index (" + columns, "ALTER TABLE " + table + " ADD KEY (" + columns})
		}
	}
	triggers, err := pairs(ctx, db, triggersSQL, strings.Join(strings.Fields(refuseIDs), " "))
	for _, t := range triggers {
		list = append(list, Deviation{fmt.Sprintf("table %s has the trigger %q, which no migration made", t[0], t[1]), "DROP TRIGGER it, unless you know what it does to the worker's statements"})
	}
	return list, err
}

// ReadIndexes returns those of the tables that the account sees, in the form of [Indexes], in
// order.
func ReadIndexes(ctx context.Context, db *sql.DB) (list []string, err error) {
	found, err := pairs(ctx, db, indexesSQL)
	for _, t := range found {
		list = append(list, t[0]+"("+t[1]+")")
	}
	slices.Sort(list)
	return list, err
}

func pairs(ctx context.Context, db *sql.DB, query string, args ...any) (list [][2]string, err error) {
	var first string
	var second sql.NullString
	err = forEachRow(ctx, db, query, args, []any{&first, &second}, func() { list = append(list, [2]string{first, second.String}) })
	if err != nil {
		return nil, fmt.Errorf("read the tables of the outbox: %w", err)
	}
	return list, nil
}

// forEachRow calls visit for each row of a query, with its columns in the variables of into.
func forEachRow(ctx context.Context, db *sql.DB, query string, args, into []any, visit func()) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		visit()
	}
	return rows.Err()
}

// Naming returns the triggers that name a table of the outbox, as "trigger on table". In another
// database, a trigger must name this database too. Without the outbox, each of them would fail the
// writes to its table. The account sees triggers of tables for which it has the privilege TRIGGER.
func Naming(ctx context.Context, db *sql.DB) (list []string, err error) {
	var what, elsewhere, database string
	err = forEachRow(ctx, db, namingSQL, nil, []any{&what, &elsewhere, &database}, func() {
		qualified := regexp.MustCompile("(?i)" + regexp.QuoteMeta(database) + "`?\\s*\\.\\s*`?cache_outbox")
		if elsewhere == "" || qualified.MatchString(elsewhere) {
			list = append(list, what)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("look for triggers: %w", err)
	}
	return list, nil
}

// InsertColumns returns the columns that an account other than a worker's may insert into a table
// that numbers its rows, as GRANT lists them, or "" for another table. The ID is none of them: one
// row with a high ID leaves no ID for the next one.
func InsertColumns(table string) string { return insertColumns[table] }

var insertColumns = map[string]string{
	"cache_outbox":         "entity, entity_id, params, trace",
	"cache_outbox_delayed": "entity, entity_id, params, trace, created_at, due_at, first_id, repeated",
	"cache_outbox_dead":    "entity, entity_id, params, created_at, first_id, reason, error, map_version",
	"cache_outbox_sweeps":  "kind, name, hold_ms, first_low, first_high",
}

// RefuseIDs returns the statement of a trigger that refuses an insert which chooses the ID of its
// row. No migration makes it: docs/operations.md has it for operators. It lets @@insert_id pass
// below 2^62, since a session that replicates statements sets that.
func RefuseIDs(table string) string {
	return "CREATE TRIGGER " + table + "_ids BEFORE INSERT ON " + table + " FOR EACH ROW\n" + refuseIDs
}

const refuseIDs = `IF NEW.id > 0 OR @@insert_id > 4611686018427387904 THEN
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the ID of a row of the outbox must not be chosen';
END IF`
