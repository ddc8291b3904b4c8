package invalidation

import (
	"slices"
	"strings"
)

// A Capture declares which changes of a table become rows of the outbox by triggers, and the
// contents of the rows. The command "unstale capture" creates the triggers.
type Capture struct {
	// Table is the table's name, in the database of the outbox.
	Table  string
	Entity string
	ID     Source
	// Watch are the columns that count: an UPDATE counts if one of them changes. None means all
	// columns of the table.
	Watch  []string
	Params []CaptureParam
	// Insert, Update and Delete are the operations that count.
	Insert, Update, Delete bool
	// IgnoreCascades leaves out rows that foreign keys delete or change, which triggers do not see.
	IgnoreCascades bool
	// SkipErrors lets a write succeed if its row cannot be inserted: the rest of the row becomes a
	// dead letter with the reason CaptureFailed. Otherwise the write fails.
	SkipErrors bool
	// IDInPattern is the first pattern of the entity with {id}, or "". A row with the ID "" becomes
	// a dead letter there, and is otherwise one like others: it unlinks keys with an empty part.
	IDInPattern string
	// Line and Column are the place in the map.
	Line, Column int
}

// A CaptureParam is a parameter of the rows.
type CaptureParam struct {
	Name   string
	Source Source
}

// rowMark represents OLD or NEW in an expression.
const rowMark = "{row}"

// A Source is the origin of a value in a trigger: a column, or an SQL expression in which {row}
// represents OLD or NEW, such as BIN_TO_UUID({row}.id).
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
