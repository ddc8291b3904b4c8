package lock

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

// A statement is a prepared one of a section.
type statement struct {
	driver.Stmt
	session *session
}

// ExecContext implements driver.StmtExecContext.
func (p *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := p.session.failure(); err != nil {
		return nil, asBroken(err)
	}
	stmt, ok := p.Stmt.(driver.StmtExecContext)
	if !ok {
		return nil, p.session.note(errNoContext)
	}
	result, err := stmt.ExecContext(ctx, args)
	return result, p.session.note(err)
}

// QueryContext implements driver.StmtQueryContext.
func (p *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := p.session.failure(); err != nil {
		return nil, asBroken(err)
	}
	stmt, ok := p.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, p.session.note(errNoContext)
	}
	rows, err := stmt.QueryContext(ctx, args)
	if err != nil {
		return nil, p.session.note(err)
	}
	return p.session.watch(rows), nil
}

// CheckNamedValue implements driver.NamedValueChecker.
func (p *statement) CheckNamedValue(value *driver.NamedValue) error { return checkValue(p.Stmt, value) }

var errNoContext = errors.New("the driver's prepared statements take no context")

// rows are the rows of a section: a deadlock can come with any row.
type rows struct {
	driver.Rows
	session *session
}

func (s *session) watch(r driver.Rows) driver.Rows { return &rows{r, s} }

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) error { return r.session.note(r.Rows.Next(dest)) }

// Close implements driver.Rows. It reads the remaining rows, since one of them may be an error.
func (r *rows) Close() error { return r.session.note(r.Rows.Close()) }

// HasNextResultSet implements driver.RowsNextResultSet.
func (r *rows) HasNextResultSet() bool {
	more, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && more.HasNextResultSet()
}

// NextResultSet implements driver.RowsNextResultSet.
func (r *rows) NextResultSet() error {
	if more, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return r.session.note(more.NextResultSet())
	}
	return io.EOF
}

// ColumnTypeDatabaseTypeName implements driver.RowsColumnTypeDatabaseTypeName.
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	if typed, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return typed.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

// ColumnTypeScanType implements driver.RowsColumnTypeScanType.
func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	if typed, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return typed.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

// ColumnTypeNullable implements driver.RowsColumnTypeNullable.
func (r *rows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if typed, has := r.Rows.(driver.RowsColumnTypeNullable); has {
		return typed.ColumnTypeNullable(i)
	}
	return false, false
}

// ColumnTypePrecisionScale implements driver.RowsColumnTypePrecisionScale.
func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if typed, has := r.Rows.(driver.RowsColumnTypePrecisionScale); has {
		return typed.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}
