package lock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/lock"
)

var errNotEnded = errors.New("the transaction was not ended")

// An unendable connection ends no transaction, as with a proxy that refuses to, and stays usable.
type unendable struct {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

func (u unendable) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	_, err := u.ConnBeginTx.BeginTx(ctx, opts)
	return notEnded{}, err
}

type notEnded struct{}

func (notEnded) Commit() error   { return errNotEnded }
func (notEnded) Rollback() error { return errNotEnded }

type unendableConnector struct{ driver.Connector }

func (c unendableConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return unendable{conn, conn.(driver.ConnBeginTx), conn.(driver.ConnPrepareContext), conn.(driver.ExecerContext), conn.(driver.QueryerContext)}, nil
}

// A transaction that could not be ended is not kept by what restores the session's settings: that
// SET autocommit would commit it.
func TestTransactionStaysOpen(t *testing.T) {
	t.Parallel()
	w := withMySQL(t, "a")
	config, err := mysql.ParseDSN(w.Env.DSN)
	must(t, err)
	connector, err := mysql.NewConnector(config)
	must(t, err)
	db := sql.OpenDB(unendableConnector{connector})
	defer db.Close()
	held := w.Acquire(w.Locker(lock.Config{}), "a")
	for wanted, own := range map[error]error{context.Canceled: context.Canceled, lock.ErrCommit: nil} {
		err := held.InTx(t.Context(), db, func(tx *sql.Tx) error {
			must(t, add(t.Context(), tx, "a"))
			return own
		})
		wantError(t, "a section", err, wanted)
		if n := w.Counter("a"); n != 0 {
			t.Errorf("%v: the counter is %d", wanted, n)
		}
		if n := db.Stats().OpenConnections; n != 0 {
			t.Errorf("%v: the pool keeps the connection", wanted)
		}
		if wanted == lock.ErrCommit {
			last := w.Acquire(w.Locker(lock.Config{}), "b")
			wantError(t, "a COMMIT without an answer", last.InTx(t.Context(), db, func(*sql.Tx) error { return nil }), lock.ErrCommit)
			must(t, w.redis.Del(t.Context(), "lock:{b}").Err())
			err := last.Release()
			wantError(t, "a loss after it", err, lock.ErrCommit)
			wantNot(t, "a loss after it", err, lock.ErrLost, lock.ErrLostAfterCommit)
		}
	}
}
