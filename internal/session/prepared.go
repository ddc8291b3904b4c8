package session

import (
	"context"
	"database/sql/driver"
	"slices"
)

// maxPrepared is the largest text, in bytes, of a statement that runs prepared. Above it, preparing
// saves nothing, and an argument that is too large fails as it does in text.
const maxPrepared = 16 << 10

// driverConn lists the interfaces of a go-sql-driver connection that database/sql uses.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// A preparing connection runs the statements listed in wanted as prepared statements. The server
// drops them with the session, and prepares them again itself after a table has changed.
type preparing struct {
	driverConn
	wanted []string
	// a nil value: this server, or a proxy in front of it, cannot prepare the statement
	stmts map[string]driver.Stmt
}

// ExecContext implements driver.ExecerContext.
func (c *preparing) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return run(ctx, c, query, args, driver.StmtExecContext.ExecContext, c.driverConn.ExecContext)
}

// QueryContext implements driver.QueryerContext.
func (c *preparing) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return run(ctx, c, query, args, driver.StmtQueryContext.QueryContext, c.driverConn.QueryContext)
}

// run runs a query prepared, or as text if it should not or cannot be prepared.
func run[S, R any](ctx context.Context, c *preparing, query string, args []driver.NamedValue,
	prepared func(S, context.Context, []driver.NamedValue) (R, error),
	text func(context.Context, string, []driver.NamedValue) (R, error)) (result R, err error) {
	stmt, err := c.prepare(ctx, query, args)
	if err == nil && stmt != nil {
		result, err = prepared(stmt.(S), ctx, args)
	}
	switch {
	case isUnprepared(err): // nothing was done; do not prepare it again
		c.stmts[query] = nil
	case err != nil || stmt != nil:
		return result, err
	}
	return text(ctx, query, args)
}

// prepare returns the prepared statement of a query, or nil if the query must run as text. An error
// is either one that the query itself would return, for example a lock on the table, or
// isUnprepared.
func (c *preparing) prepare(ctx context.Context, query string, args []driver.NamedValue) (driver.Stmt, error) {
	if !slices.Contains(c.wanted, query) || textBytes(args) > maxPrepared {
		return nil, nil
	}
	stmt, known := c.stmts[query]
	if known {
		return stmt, nil
	}
	stmt, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.stmts[query] = stmt
	return stmt, nil
}

func textBytes(args []driver.NamedValue) (n int) {
	for _, a := range args {
		if text, ok := a.Value.(string); ok {
			n += len(text)
		}
	}
	return n
}
