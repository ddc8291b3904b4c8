package capture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/invalidation"
)

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
	switch event {
	case "INSERT":
		return w.Insert
	case "UPDATE":
		return w.Update
	default:
		return w.Delete
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
		}, nil
	}
	column, err := w.table.column(string(s))
	if err != nil {
		return source{}, err
	}
	if _, err := column.text(newRow); err != nil {
		return source{}, err
	}
	return source{
		of:     func(row string) string { text, _ := column.text(row); return text },
		same:   column.same(),
		column: column.Name,
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
	return w.guarded("    IF NOT (" + strings.Join(w.same, "\n      AND ") + ") THEN\n" +
		w.insert(newRow, "      ", oldRow, newRow) +
		"      IF NOT (" + w.id.same + ") THEN\n" + w.insert(oldRow, "        ", oldRow, newRow) + "      END IF;\n" +
		"    END IF;\n")
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
