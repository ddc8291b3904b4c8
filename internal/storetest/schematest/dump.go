package schematest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// descriptions are queries about the current database and, by their last part, what [Dump] writes.
// They repeat what SHOW CREATE TABLE shows, and add what it leaves out: row formats, for example.
var descriptions = []string{
	`SELECT 'table', table_name, engine, row_format, table_collation, create_options, table_comment
FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name`,
	`SELECT 'column', table_name, ordinal_position, column_name, column_type, character_set_name, collation_name, is_nullable, column_default, extra, column_comment
FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position`,
	`SELECT 'index', table_name, index_name, seq_in_index, column_name, non_unique, collation, sub_part, index_type, index_comment
FROM information_schema.statistics WHERE table_schema = DATABASE() ORDER BY table_name, index_name, seq_in_index`,
	`SELECT 'constraint', table_name, constraint_name, constraint_type
FROM information_schema.table_constraints WHERE table_schema = DATABASE() ORDER BY table_name, constraint_name`,
	`SELECT 'trigger', event_object_table, trigger_name, action_timing, event_manipulation, action_statement
FROM information_schema.triggers WHERE trigger_schema = DATABASE() ORDER BY trigger_name`,
	`SELECT 'routine', routine_name, routine_type, routine_definition
FROM information_schema.routines WHERE routine_schema = DATABASE() ORDER BY routine_name`,
	// each outbox has a different ID
	"SELECT 'source', one, id REGEXP '^[0-9a-f]{32}$' FROM cache_outbox_source ORDER BY one",
	// the steps before the baseline wrote one row each
	"SELECT 'version', MAX(version_id), MAX(oldest), MIN(is_applied) FROM cache_outbox_version",
}

// Dump describes the outbox in a database: the tables with all that they have, triggers, routines,
// and the first rows. On one server, databases with the same schema have the same text.
func Dump(ctx context.Context, db *sql.DB) (string, error) {
	var text strings.Builder
	s, err := read(ctx, db)
	if err != nil {
		return "", fmt.Errorf("dump a schema: %w", err)
	}
	for _, table := range s.tables {
		// MySQL names the character set of a column again that a statement has named.
		text.WriteString(strings.ReplaceAll(table, " CHARACTER SET utf8mb4", "") + ";\n")
	}
	for _, query := range descriptions {
		if err := describe(ctx, db, query, &text); err != nil {
			return "", fmt.Errorf("dump a schema: %w", err)
		}
	}
	return text.String(), nil
}

// describe writes a line for each row of a query.
func describe(ctx context.Context, db *sql.DB, query string, to *strings.Builder) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		targets := make([]any, len(columns))
		for i := range values {
			targets[i] = &values[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for i, v := range values {
			if i > 0 {
				to.WriteByte('\t')
			}
			if !v.Valid {
				v.String = "NULL"
			}
			to.WriteString(v.String)
		}
		to.WriteByte('\n')
	}
	return rows.Err()
}
