package capture

import (
	"strings"

	"github.com/unstale/unstale/invalidation"
)

// A destination is a table that triggers insert rows into.
type destination struct {
	table   string
	columns []string
	values  func(entity, id, params string) string
}

// into returns the table with its columns.
func (d destination) into() string { return d.table + " (" + strings.Join(d.columns, ", ") + ")" }

var outboxRows = destination{
	"cache_outbox", []string{"entity", "entity_id", "params"},
	func(entity, id, params string) string { return literal(entity) + ", " + id + ", " + params },
}

// deadLetters returns the destination of a table whose captures skip errors. The error is in
// variables: see handled.
func (w *writer) deadLetters() destination {
	return destination{
		deadTable, deadColumns,
		func(entity, id, params string) string {
			return literal(entity) + ", LEFT(" + id + ", 256), " + params + ", UTC_TIMESTAMP(6), 0, " + literal(string(invalidation.CaptureFailed)) +
				", CONCAT(" + literal("a trigger of "+w.table.Name+": ") + ", COALESCE(unstale_message, 'not known why'), ' (', COALESCE(unstale_number, 0), ')'), ''"
		},
	}
}

const deadTable = "cache_outbox_dead"

var deadColumns = []string{"entity", "entity_id", "params", "created_at", "first_id", "reason", "error", "map_version"}

// insertion returns a statement that inserts into the outbox. If errors are skipped and that fails,
// it inserts into the dead letters.
func (w *writer) insertion(indent string, statement func(indent string, to destination) string) string {
	if !w.SkipErrors {
		return statement(indent, outboxRows)
	}
	return handled(indent, "EXIT", statement(indent+"    ", w.deadLetters()), statement(indent+"  ", outboxRows))
}

// guarded returns statements of a capture that never fail the write if errors are skipped: without
// an ID the dead letter has none, and if the dead letter fails too, the row is lost. MySQL runs no
// handler after a deadlock or a lock wait timeout: these fail the write as without triggers.
func (w *writer) guarded(statements string) string {
	if !w.SkipErrors {
		return statements
	}
	to := w.deadLetters()
	return handled("    ", "CONTINUE", "        BEGIN\n"+
		"          DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END;\n"+
		"          INSERT INTO "+to.into()+" VALUES ("+to.values(w.Entity, "''", "NULL")+");\n"+
		"        END;\n", statements)
}

// handled returns statements with a handler of their errors, which gets number and message in
// variables. The variables are declared outside: a declaration would clear the condition, and
// MariaDB has no GET STACKED DIAGNOSTICS.
func handled(indent, handler, failed, statements string) string {
	return indent + "BEGIN\n" +
		indent + "  DECLARE unstale_number INT;\n" +
		indent + "  DECLARE unstale_message TEXT CHARACTER SET utf8mb4;\n" +
		indent + "  DECLARE " + handler + " HANDLER FOR SQLEXCEPTION\n" +
		indent + "  BEGIN\n" +
		indent + "    BEGIN\n" + // in a session with max_error_count = 0 there is none
		indent + "      DECLARE EXIT HANDLER FOR SQLEXCEPTION, SQLWARNING BEGIN END;\n" +
		indent + "      GET DIAGNOSTICS CONDITION 1 unstale_number = MYSQL_ERRNO, unstale_message = MESSAGE_TEXT;\n" +
		indent + "    END;\n" +
		failed +
		indent + "  END;\n" +
		statements +
		indent + "END;\n"
}
