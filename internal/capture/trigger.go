package capture

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/internal/sqltext"
	"github.com/unstale/unstale/invalidation"
)

// Prefix begins the name of every trigger of unstale.
const Prefix = "unstale_"

// Switch is the session variable that disables triggers if it is 'off'. It is compared as bytes:
// otherwise a number would convert 'off' to a number, which MySQL refuses (1292) and MariaDB treats
// as 0.
const Switch = "@unstale_capture"

// SQLMode is the required mode for creating triggers, since they keep it: a value that is too long
// fails the write instead of being truncated, so the row cannot name another key.
const SQLMode = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"

// A Trigger is a trigger that a map requires.
type Trigger struct {
	Table  string
	Timing string // AFTER or BEFORE
	Event  string // INSERT, UPDATE or DELETE
	Body   string // from BEGIN to END
	Tree   bool   // it reads a tree in its table, and loses rows of the tree at READ COMMITTED
	Cycle  bool   // the tree is a cycle of tables
}

// hashLength is the length of the hash in the name of a trigger.
const hashLength = 16

// Name returns the name of the trigger, or of its nth twin while another trigger has that name.
func (t Trigger) Name(n int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{t.Table, t.Timing, t.Event, t.Body}, "\x00")))
	name := Prefix + strings.ToLower(t.Event) + "_" + hex.EncodeToString(sum[:hashLength/2])
	if n > 1 {
		name += fmt.Sprint("_", n)
	}
	return name
}

// newer matches the parts of a trigger that earlier versions did not write, or wrote otherwise:
// locks on middle levels, locks on children in MariaDB, hints, trees, and comparisons of texts. See
// lockLevel, newCascaded, unlimited, tree and alsoAsText.
var newer = regexp.MustCompile(`(?s)    BEGIN\n      DECLARE unstale_rows .*?\n    END;\n| /\*\+ SET_VAR\(.*?\*/|SET STATEMENT sql_big_selects .*? FOR | LOCK IN SHARE MODE` +
	"|WITH RECURSIVE unstale_tree .*?\n +SELECT |FROM [^;]*?unstale_tree[^;]*;" +
	"|\n      AND CAST\\(OLD\\.`(?:[^`]|``)*` AS CHAR\\) <=> CAST\\(NEW\\.`(?:[^`]|``)*` AS CHAR\\)")

// older returns the trigger without these parts. For a trigger without a tree, this is the trigger
// that earlier versions created from the same map. It equals t if they had no defect.
func (t Trigger) older() *Trigger {
	if slices.ContainsFunc(newerWords, func(word string) bool { return strings.Contains(t.Body, word) }) {
		t.Body = newer.ReplaceAllString(t.Body, "")
	}
	return &t
}

// newerWords has a text from each alternative of newer: add one with each alternative. Searching for
// them takes a hundredth of the time.
var newerWords = []string{"unstale_rows", "/*+ SET_VAR", "SET STATEMENT", "LOCK IN SHARE MODE", "unstale_tree", "AS CHAR) <=> CAST(NEW"}

// SQL returns the statement that creates the trigger.
func (t Trigger) SQL(name string, definer Account) string {
	return fmt.Sprintf("CREATE DEFINER = %s TRIGGER %s %s %s ON %s FOR EACH ROW\n%s", definer, quote(name), t.Timing, t.Event, quote(t.Table), t.Body)
}

// unstorable returns a name in the trigger that MySQL cannot store (3507), or "". In its dictionary
// MySQL repeats bytes at the beginning and at the end of a name, one for each backtick in the name.
// If that cuts a character, the text is invalid.
func (t Trigger) unstorable() string {
	for _, token := range sqltext.Tokens(t.Body) {
		if token[0] != '`' || len(token) < 2 {
			continue
		}
		name := token[1 : len(token)-1]
		n := strings.Count(name, "``")
		if !utf8.ValidString(name[:n]) || !utf8.ValidString(name[len(name)-n:]) {
			return token
		}
	}
	return ""
}

// enabled is true unless the session disables triggers.
const enabled = "NOT (CAST(" + Switch + " AS BINARY) <=> 'off')"

// newTrigger creates a trigger from the statements of its captures.
func newTrigger(table, timing, event string, statements []string) Trigger {
	return Trigger{Table: table, Timing: timing, Event: event, Body: "BEGIN\n  IF " + enabled + " THEN\n" + strings.Join(statements, "") + "  END IF;\nEND"}
}

// ofRows returns the triggers that the writers need on a table, one for each operation.
func ofRows(table string, writers []*writer) (all []Trigger) {
	for _, event := range []string{"INSERT", "UPDATE", "DELETE"} {
		of := slices.DeleteFunc(slices.Clone(writers), func(w *writer) bool { return !w.on(event) })
		if len(of) == 0 {
			continue
		}
		var body []string
		if event == "UPDATE" && !slices.ContainsFunc(of, func(w *writer) bool { return !w.isQuick() }) {
			for _, w := range of {
				body = append(body, w.quickUpdate())
			}
			all = append(all, Trigger{Table: table, Timing: "AFTER", Event: event, Body: "BEGIN\n" + strings.Join(body, "") + "END"})
			continue
		}
		for _, w := range of {
			body = append(body, w.statements(event))
		}
		all = append(all, newTrigger(table, "AFTER", event, body))
	}
	return all
}

// A writer generates the statements of one capture in triggers.
type writer struct {
	invalidation.Capture
	table  Table
	same   []string // conditions; an UPDATE does not count if all are true
	id     source
	params []param
}

type param struct {
	name string
	source
}

// A source is the source of a value.
type source struct {
	of     func(row string) string // an expression
	same   string                  // condition: the value is the same in both rows
	column string                  // "" if it is an expression
	text   string                  // of the expression
	isText bool                    // the column, whose values may need escapes in JSON
}

// newWriter returns the writer of a capture. The error joins all faults.
func newWriter(c invalidation.Capture, table Table) (*writer, error) {
	w := &writer{Capture: c, table: table}
	var faults []error
	watched := c.Watch
	if len(watched) == 0 {
		for _, column := range table.Columns {
			watched = append(watched, column.Name)
		}
	}
	for _, name := range watched {
		column, err := table.column(name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		w.watch(column.same())
	}
	var err error
	if w.id, err = w.source(c.ID); err == nil && w.id.column != "" {
		column, _ := table.column(w.id.column)
		err = column.fits()
	}
	if err != nil {
		faults = append(faults, fmt.Errorf("id: %w", err))
	}
	w.watch(w.id.same)
	for _, p := range c.Params {
		s, err := w.source(p.Source)
		if err != nil {
			faults = append(faults, fmt.Errorf("the param %s: %w", p.Name, err))
			continue
		}
		w.watch(s.same)
		w.params = append(w.params, param{p.Name, s})
	}
	return w, errors.Join(faults...)
}

// watch adds a condition.
func (w *writer) watch(same string) {
	if !slices.Contains(w.same, same) {
		w.same = append(w.same, same)
	}
}

func (w *writer) on(event string) bool {
	return map[string]bool{"INSERT": w.Insert, "UPDATE": w.Update, "DELETE": w.Delete}[event]
}

// unused returns a name that no column has.
func (t Table) unused(name string) string {
	for {
		if _, err := t.column(name); err != nil {
			return name
		}
		name += "_"
	}
}

func (t Table) column(name string) (Column, error) {
	i := slices.IndexFunc(t.Columns, func(c Column) bool { return strings.EqualFold(c.Name, name) })
	if i < 0 {
		var names []string
		for _, c := range t.Columns {
			names = append(names, c.Name)
		}
		return Column{}, errors.New(strings.TrimSuffix("the table has no column "+name+"; "+near.DidYouMean(name, names, ""), "; "))
	}
	return t.Columns[i], nil
}

func (w *writer) source(s invalidation.Source) (source, error) {
	if s.IsExpression() {
		return source{
			of:   func(row string) string { return plainText("(" + s.Of(row) + ")") },
			same: fmt.Sprintf("CAST((%s) AS BINARY) <=> CAST((%s) AS BINARY)", s.Of(oldRow), s.Of(newRow)),
			text: string(s),
		}, nil
	}
	column, err := w.table.column(string(s))
	if err != nil {
		return source{}, err
	}
	if _, err := column.textSQL(newRow); err != nil {
		return source{}, err
	}
	return source{
		of:     func(row string) string { text, _ := column.textSQL(row); return text },
		same:   column.same(),
		column: column.Name,
		isText: column.isText(),
	}, nil
}

// try lets the server parse the expressions, without a row: unknown names would fail every write.
// The error joins all faults.
func (w *writer) try(ctx context.Context, db *sql.DB) error {
	var faults []error
	for _, s := range w.expressions() {
		if strings.Contains(string(s), "/*!") || strings.Contains(string(s), "/*M!") {
			faults = append(faults, fmt.Errorf("the expression %s has a comment that some servers execute and others do not; write what this one is to do", s))
			continue
		}
		kind, err := kindOf(ctx, db, "("+s.Of(triedRow)+")", w.table.Name)
		switch n := mysqlerr.Number(err); {
		case slices.Contains(bytesKinds, kind):
			faults = append(faults, fmt.Errorf("the expression %s gives bytes, and bytes that are not UTF-8 would leave no row in MySQL and fail the write in MariaDB; "+
				"use HEX or BIN_TO_UUID or, if it is always text, CONVERT(... USING utf8mb4)", s))
		case err == nil:
		// privileges of this account, which need not be the definer
		case n == mysqlerr.NoRight, n == mysqlerr.NoColumnRight:
		default:
			faults = append(faults, fmt.Errorf("the expression %s: %w", s, err))
		}
	}
	return errors.Join(faults...)
}

// Kinds of binary values, as the driver names them.
var bytesKinds = []string{"BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "BIT"}

// kindOf returns the kind of an expression's values for a row of a table.
func kindOf(ctx context.Context, db *sql.DB, expression, table string) (string, error) {
	// Contract: no lock, no row.
	rows, err := db.QueryContext(ctx, "SELECT "+expression+" FROM "+quote(table)+" AS "+triedRow+" LIMIT 0")
	if err != nil {
		return "", err
	}
	kinds, err := rows.ColumnTypes()
	if err := errors.Join(err, rows.Close()); err != nil {
		return "", err
	}
	return kinds[0].DatabaseTypeName(), nil
}

// expressions returns the expressions of the ID and the params.
func (w *writer) expressions() (all []invalidation.Source) {
	for _, p := range append([]invalidation.CaptureParam{{Source: w.ID}}, w.Params...) {
		if p.Source.IsExpression() {
			all = append(all, p.Source)
		}
	}
	return all
}

// statements returns the statements of one operation.
func (w *writer) statements(event string) string {
	switch event {
	case "INSERT":
		return w.guarded(w.insert(newRow, "    ", newRow))
	case "DELETE":
		return w.guarded(w.insert(oldRow, "    ", oldRow))
	}
	return w.guarded("    " + w.ifChanged() + w.insertBoth() + "    END IF;\n")
}

// ifChanged begins the statement that an UPDATE executes if it counts.
func (w *writer) ifChanged() string {
	return "IF NOT (" + strings.Join(w.same, "\n      AND ") + ") THEN\n"
}

// insertBoth inserts a row of the new ID, and one of the old ID if it differs.
func (w *writer) insertBoth() string {
	return w.insert(newRow, "      ", oldRow, newRow) +
		"      IF NOT (" + w.id.same + ") THEN\n" + w.insert(oldRow, "        ", oldRow, newRow) + "      END IF;\n"
}

// isQuick reports whether quickUpdate is possible: comparisons of columns cannot fail, and cost
// little in a session that disables triggers.
func (w *writer) isQuick() bool {
	return !w.SkipErrors && w.id.column != "" && !slices.ContainsFunc(w.params, func(p param) bool { return p.column == "" })
}

// quickUpdate returns the statements of an UPDATE, without the condition that triggers are enabled.
// Each IF that a server executes for a row costs a microsecond, and JSON_OBJECT takes longer than
// CONCAT. So a row that does not count executes one IF, and one that keeps its ID two.
func (w *writer) quickUpdate() string {
	params, conditions := w.paramsText()
	conditions = append([]string{w.id.same, newRow + "." + quote(w.id.column) + " IS NOT NULL"}, conditions...)
	return "  " + w.ifChanged() +
		"    IF " + strings.Join(append(conditions, enabled), " AND ") + " THEN\n" +
		"      INSERT INTO " + outboxRows.into() + " VALUES (" + outboxRows.values(w.Entity, w.id.of(newRow), params) + ");\n" +
		"    ELSEIF " + enabled + " THEN\n" + w.insertBoth() + "    END IF;\n" +
		"  END IF;\n"
}

// paramsText returns the column params of an UPDATE, and conditions that must hold for it. Values
// that are not text need no escapes, so CONCAT makes their JSON, except of NULL.
func (w *writer) paramsText() (params string, conditions []string) {
	both := func(p param) []string { return []string{p.of(oldRow), p.of(newRow)} }
	if len(w.params) == 0 || slices.ContainsFunc(w.params, func(p param) bool { return p.isText }) {
		return w.paramsObject(both), nil
	}
	var pairs []string
	for _, p := range w.params {
		for _, row := range []string{oldRow, newRow} {
			conditions = append(conditions, row+"."+quote(p.column)+" IS NOT NULL")
		}
		pairs = append(pairs, `"`+p.name+`": ["', `+strings.Join(both(p), `, '", "', `)+`, '"]`)
	}
	return "CONCAT('{" + strings.Join(pairs, ", ") + "}')", conditions
}

// insert inserts the outbox row of an ID, with the params of rows. A row without an ID has no keys.
func (w *writer) insert(id, indent string, rows ...string) string {
	params := w.paramsObject(func(p param) (values []string) {
		for _, row := range rows {
			values = append(values, p.of(row))
		}
		return values
	})
	return w.insertion(indent, func(indent string, to destination) string {
		return indent + "IF " + w.id.of(id) + " IS NOT NULL THEN\n" +
			indent + "  INSERT INTO " + to.into() + " VALUES (" + to.values(w.Entity, w.id.of(id), params) + ");\n" +
			indent + "END IF;\n"
	})
}

// paramsObject returns the column params, given the values of each.
func (w *writer) paramsObject(values func(param) []string) string {
	if len(w.params) == 0 {
		return "NULL"
	}
	var pairs []string
	for _, p := range w.params {
		pairs = append(pairs, literal(p.name)+", JSON_ARRAY("+strings.Join(values(p), ", ")+")")
	}
	return "JSON_OBJECT(" + strings.Join(pairs, ", ") + ")"
}

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
