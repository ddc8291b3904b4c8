package store

import (
	"context"
	"database/sql/driver"
)

// prepared are the statements of each batch and poll, which a session prepares when it first runs them. Parsing and
// resolving them again each time is a seventh of what a batch of five rows costs MySQL 9.7, and a fifth of what it costs
// MariaDB 10.11.
var prepared = map[string]bool{
	firstSQL: true, hot.claimSQL: true, hot.removeSQL: true, hot.removeOneSQL: true, journalSQL: true,
}

// maxPrepared is up to how many bytes of text a statement runs prepared. With more there is nothing to be saved, and an
// argument that is too large fails as text does.
const maxPrepared = 16 << 10

// driverConn is what database/sql makes use of in a connection of go-sql-driver.
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

// A preparing connection runs the statements of the map prepared. The server drops them with the session, and prepares
// them again by itself after a change of a table.
type preparing struct {
	driverConn
	stmts map[string]driver.Stmt // nil: this server, or what is in front of it, will not have it prepared
}

// ExecContext implements driver.ExecerContext.
func (c *preparing) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return run(ctx, c, query, args, driver.StmtExecContext.ExecContext, c.driverConn.ExecContext)
}

// QueryContext implements driver.QueryerContext.
func (c *preparing) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return run(ctx, c, query, args, driver.StmtQueryContext.QueryContext, c.driverConn.QueryContext)
}

// run runs a query prepared, or as text if it is not to be prepared or cannot be.
func run[S, R any](ctx context.Context, c *preparing, query string, args []driver.NamedValue,
	prepared func(S, context.Context, []driver.NamedValue) (R, error),
	text func(context.Context, string, []driver.NamedValue) (R, error)) (result R, err error) {
	stmt, err := c.prepare(ctx, query, args)
	if err == nil && stmt != nil {
		result, err = prepared(stmt.(S), ctx, args)
	}
	switch {
	case isUnprepared(err): // nothing was done, and it is not tried again
		c.stmts[query] = nil
	case err != nil || stmt != nil:
		return result, err
	}
	return text(ctx, query, args)
}

// prepare is nil without an error if the query is to run as text. An error is one that the query itself would have met,
// such as a lock on the table, or says that it cannot be prepared.
func (c *preparing) prepare(ctx context.Context, query string, args []driver.NamedValue) (driver.Stmt, error) {
	if !prepared[query] || textBytes(args) > maxPrepared {
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
