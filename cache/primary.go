package cache

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/dberr"
)

// A Pool gives connections: *sql.DB and *sqlx.DB do.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
}

// ErrReadOnly is returned by OnPrimary for a server that takes no writes: it may be a replica,
// which is behind.
var ErrReadOnly = dberr.ErrReadOnly

// Contract: no table, no lock, one line.
const readOnlySQL = "SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only"

// primaryTries is how many connections OnPrimary tries: a pool may still have some to the old
// primary.
const primaryTries = 3

// OnPrimary returns a connection for a loader to a MySQL or MariaDB server that accepts writes, or
// an error. It asks the server on each call, in one round trip. The lease was taken earlier and
// covers later changes, so no stale value is stored even if the server becomes a replica meanwhile.
// OnPrimary closes a connection to a read-only server and tries others, which may lead to the new
// primary. After three it returns ErrReadOnly. The caller closes the connection.
//
//	conn, err := cache.OnPrimary(ctx, db)
//	if err != nil {
//		return Product{}, err
//	}
//	defer conn.Close()
//
// It does not detect a server that accepts writes but lags behind, as with Galera and group
// replication: set wsrep_sync_wait or group_replication_consistency there, or use hold in the map.
func OnPrimary(ctx context.Context, db Pool) (*sql.Conn, error) {
	var err error
	for range primaryTries {
		var conn *sql.Conn
		if conn, err = db.Conn(ctx); err != nil {
			return nil, fmt.Errorf("connect to the primary: %w", err)
		}
		if err = takesWrites(ctx, conn); err == nil {
			return conn, nil
		}
		dberr.Discard(conn)
		if !errors.Is(err, ErrReadOnly) && !errors.Is(err, driver.ErrBadConn) {
			break
		}
	}
	return nil, fmt.Errorf("connect to the primary: %w", err)
}

// takesWrites returns nil for a connection to a server that does.
func takesWrites(ctx context.Context, conn *sql.Conn) error {
	var readOnly, innodb string
	if err := conn.QueryRowContext(ctx, readOnlySQL).Scan(&readOnly, &innodb); err != nil {
		return err
	}
	if !dberr.IsOff(readOnly) || !dberr.IsOff(innodb) {
		return ErrReadOnly
	}
	return nil
}
