// Package dberr has the errors of a database that several packages return. Some export them under
// the same name, so errors.Is finds them whichever package returned them.
package dberr

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

var (
	// ErrReadOnly is a server that accepts no writes. It may be a replica, which lags.
	ErrReadOnly = errors.New("the server is read-only: it may be a replica, which lags; connect to the primary")
	// ErrCommit is a COMMIT that failed, so its outcome is unknown.
	ErrCommit = errors.New("commit transaction")
	// ErrVTGate is VTGate of Vitess, where a shard is needed.
	ErrVTGate = errors.New("the server is VTGate of Vitess, which keeps settings and variables of a session to itself and has no CREATE TRIGGER; " +
		"connect to the MySQL of the shard's primary, with a DSN such as user:password@tcp(host:3306)/vt_keyspace: docs/topologies.md#vitess")
)

// BannerSQL selects the banner for IsVTGate. VTGate fills in both variables itself, in any query.
// Contract: no lock, no table.
const BannerSQL = "SELECT CONCAT(@@version, ' ', @@version_comment)"

// IsVTGate reports whether a banner, the version and the version comment of a server, is VTGate's.
// Its version can be set; its comment is "Version: 24.0.4 (Git revision ...".
func IsVTGate(banner string) bool {
	return strings.Contains(banner, "-Vitess") || strings.Contains(banner, " (Git revision ")
}

// RefuseVTGate returns ErrVTGate if a *sql.DB or *sql.Conn leads to VTGate, or the database's error.
func RefuseVTGate(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) error {
	var banner string
	if err := db.QueryRowContext(ctx, BannerSQL).Scan(&banner); err != nil {
		return err
	}
	if IsVTGate(banner) {
		return ErrVTGate
	}
	return nil
}
