package session

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/outbox"
)

// A Place is the location of an outbox.
type Place struct {
	Server string // the ID of the server, or of its Galera cluster or replication group
	Schema string // the name of the database
}

// Contract for both: no lock, no table. A server without an ID (MariaDB before 10.11.9) is
// identified by its host and port.
const (
	serverSQL  = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('group_replication_group_name', 'server_uuid', 'server_uid', 'hostname', 'port', 'read_only', 'innodb_read_only')"
	clusterSQL = "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'"
)

// Primary returns a session and the location of the outbox there. The caller closes the session. If
// the server is read-only, the error is outbox.ErrReadOnly: it may have been the primary before a
// failover, so Primary drops the session, and the next call connects again.
func (s *Sessions) Primary(ctx context.Context) (conn *sqlx.Conn, p Place, err error) {
	if conn, err = s.Side.Connx(ctx); err == nil {
		p, err = place(ctx, conn)
		if errors.Is(err, outbox.ErrReadOnly) {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		if err != nil {
			_ = conn.Close()
		}
	}
	if err != nil {
		err = fmt.Errorf("locate the outbox: %w", err)
	}
	return conn, p, err
}

// place returns the location of the outbox on a server that accepts writes.
func place(ctx context.Context, db sqlx.QueryerContext) (p Place, err error) {
	known := map[string]string{}
	for _, query := range []string{serverSQL, clusterSQL} {
		var list []struct {
			Name  string `db:"Variable_name"`
			Value string `db:"Value"`
		}
		if err := sqlx.SelectContext(ctx, db, &list, query); err != nil {
			return p, err
		}
		for _, v := range list {
			known[v.Name] = v.Value
		}
	}
	if known["read_only"] != "OFF" || cmp.Or(known["innodb_read_only"], "OFF") != "OFF" {
		return p, outbox.ErrReadOnly
	}
	p.Server = cmp.Or(known["wsrep_cluster_state_uuid"], known["group_replication_group_name"], known["server_uuid"], known["server_uid"],
		known["hostname"]+":"+known["port"])
	return p, sqlx.GetContext(ctx, db, &p.Schema, "SELECT DATABASE()")
}
