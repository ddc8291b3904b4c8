package cache

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// A Pool gives connections: *sql.DB and *sqlx.DB do.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
}

// ErrReadOnly is returned by OnPrimary for a server that takes no writes: it may be a replica, which is behind.
var ErrReadOnly = errors.New("the server is read-only: it may be a replica, which is behind; connect to the primary")

// Contract: no table, no lock, one line.
const readOnlySQL = "SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only"

// primaryTries is how many connections OnPrimary tries: a pool may still hold some to what was the primary.
const primaryTries = 3

// OnPrimary returns a connection for a loader to a MySQL or MariaDB server that takes writes, or an error. It asks the server
// each time, in one round trip: a lease that was taken before covers what changes afterwards, so that nothing stale is stored
// even if the server becomes a replica in between. A connection to a server that is read-only is closed for good, and others
// are tried, which may lead to the new primary; after three the error is ErrReadOnly. Close the connection.
//
//	conn, err := cache.OnPrimary(ctx, db)
//	if err != nil {
//		return Product{}, err
//	}
//	defer conn.Close()
//
// It does not notice a server that takes writes and is behind all the same, as with Galera and group replication: set
// wsrep_sync_wait or group_replication_consistency there, or use hold in the map.
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
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // which the pool does not keep
		_ = conn.Close()                                           // Raw has closed it
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
	for _, value := range []string{readOnly, innodb} {
		if value != "0" && !strings.EqualFold(value, "OFF") { // newer servers have more than on and off
			return ErrReadOnly
		}
	}
	return nil
}
