package invalidation

import (
	"slices"
	"strings"
)

// A Capture says which changes of a table become rows of the outbox by triggers, and what those say. Command
// "unstale capture" makes the triggers.
type Capture struct {
	// Table is the table's name, in the database of the outbox.
	Table  string
	Entity string
	ID     Source
	// Watch are the columns of which one must change for an UPDATE to count. None: all of the table.
	Watch  []string
	Params []CaptureParam
	// Insert, Update and Delete are the operations that count.
	Insert, Update, Delete bool
	// IgnoreCascades says that what foreign keys delete or set in the table is left out, since triggers do not see it.
	IgnoreCascades bool
	// SkipErrors says that a write goes on whose row cannot be inserted: what is left of the row is a dead letter with the
	// reason CaptureFailed. Otherwise the write fails.
	SkipErrors bool
	// Line and Column are where the map says so.
	Line, Column int
}

// A CaptureParam is a parameter of the rows.
type CaptureParam struct {
	Name   string
	Source Source
}

// rowMark stands for OLD or NEW in an expression.
const rowMark = "{row}"

// A Source is where a trigger takes a value from: a column, or an SQL expression in which {row} stands for OLD or NEW, such
// as BIN_TO_UUID({row}.id).
type Source string

// IsExpression reports whether the source is an expression, and not a column.
func (s Source) IsExpression() bool { return strings.Contains(string(s), rowMark) }

// Of returns the expression for a row, OLD or NEW.
func (s Source) Of(row string) string { return strings.ReplaceAll(string(s), rowMark, row) }

// Captures returns the captures of the map, in file order.
func (m *Map) Captures() []Capture {
	all := slices.Clone(m.captures)
	for i := range all {
		all[i].Watch, all[i].Params = slices.Clone(all[i].Watch), slices.Clone(all[i].Params)
	}
	return all
}
