package examples

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/go-sql-driver/mysql"
)

// A stepping connector calls step before and after each BEGIN, statement and COMMIT, with names
// such as "before COMMIT". The connection returns an error of step.
type stepping struct {
	driver.Connector
	step func(name string) error
}

// A mysqlConn is a connection of the driver.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
}

type steppingConn struct {
	mysqlConn
	step func(name string) error
}

type steppingTx struct {
	driver.Tx
	step func(name string) error
}

// openStepping returns a database whose statements are one command each.
func openStepping(dsn string, step func(name string) error) (*sql.DB, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.InterpolateParams = true
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(stepping{connector, step}), nil
}

func (s stepping) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return steppingConn{conn.(mysqlConn), s.step}, nil
}

func (c steppingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = around(c.step, "BEGIN", func() error {
		tx, err = c.mysqlConn.BeginTx(ctx, opts)
		return err
	})
	return steppingTx{tx, c.step}, err
}

func (c steppingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	err = around(c.step, query, func() error {
		result, err = c.mysqlConn.ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

func (c steppingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = around(c.step, query, func() error {
		rows, err = c.mysqlConn.QueryContext(ctx, query, args)
		return err
	})
	return rows, err
}

func (t steppingTx) Commit() error { return around(t.step, "COMMIT", t.Tx.Commit) }

func around(step func(name string) error, name string, do func() error) error {
	if err := step("before " + name); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return step("after " + name)
}
