package schema

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

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
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the tables of the outbox: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var p [2]string
		var second sql.NullString
		if err := rows.Scan(&p[0], &second); err != nil {
			return nil, fmt.Errorf("read the tables of the outbox: %w", err)
		}
		p[1] = second.String
		list = append(list, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the tables of the outbox: %w", err)
	}
	return list, nil
}

// Naming returns the triggers that name a table of the outbox, as "trigger on table". In another
// database, a trigger must name this database too. Without the outbox, each of them would fail the
// writes to its table. The account sees triggers of tables for which it has the privilege TRIGGER.
func Naming(ctx context.Context, db *sql.DB) (list []string, err error) {
	rows, err := db.QueryContext(ctx, namingSQL)
	if err != nil {
		return nil, fmt.Errorf("look for triggers: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var what, elsewhere, database string
		if err := rows.Scan(&what, &elsewhere, &database); err != nil {
			return nil, fmt.Errorf("look for triggers: %w", err)
		}
		qualified := regexp.MustCompile("(?i)" + regexp.QuoteMeta(database) + "`?\\s*\\.\\s*`?cache_outbox")
		if elsewhere == "" || qualified.MatchString(elsewhere) {
			list = append(list, what)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look for triggers: %w", err)
	}
	return list, nil
}
