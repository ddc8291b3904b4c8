// Package dberr has what several packages ask of a database's server, and its errors. Some export
// these under the same name, so errors.Is finds them whichever package returned them.
package dberr

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
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

// A Querier is a *sql.DB or a *sql.Conn.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// RefuseVTGate returns ErrVTGate if a connection leads to VTGate, or the database's error.
func RefuseVTGate(ctx context.Context, db Querier) error {
	var banner string
	if err := db.QueryRowContext(ctx, BannerSQL).Scan(&banner); err != nil {
		return err
	}
	if IsVTGate(banner) {
		return ErrVTGate
	}
	return nil
}

// Contract: no lock. A row means that other servers take writes too: of Galera, or of group
// replication with several primaries. A server may have neither of the variables.
const writersSQL = `SHOW GLOBAL VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'
OR Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF'`

// OtherWriters returns the setting by which other servers take writes too, for example "wsrep_on is
// ON", or "" if none do.
func OtherWriters(ctx context.Context, db Querier) (setting string, err error) {
	var name, value string
	err = db.QueryRowContext(ctx, writersSQL).Scan(&name, &value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return name + " is " + value, err
}

// IsOff reports whether a variable such as @@read_only is off. Newer servers have more values than
// on and off.
func IsOff(variable string) bool { return variable == "0" || strings.EqualFold(variable, "OFF") }

// Discard closes a connection instead of returning it to the pool with its settings.
func Discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // which the pool does not keep
	_ = conn.Close()                                           // Raw has closed it
}

// Wrap returns err with what was being done, or nil for nil.
func Wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
