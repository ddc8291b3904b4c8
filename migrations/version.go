package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
)

// MySQL's error numbers: https://dev.mysql.com/doc/mysql-errors/en/server-error-reference.html
const (
	errTableExists  = 1050 // ER_TABLE_EXISTS_ERROR
	errColumnExists = 1060 // ER_DUP_FIELDNAME
	errKeyExists    = 1061 // ER_DUP_KEYNAME
	errNothingThere = 1091 // ER_CANT_DROP_FIELD_OR_KEY
	errLockTimeout  = 1205 // ER_LOCK_WAIT_TIMEOUT
	errNoRight      = 1142 // ER_TABLEACCESS_DENIED_ERROR
	errNoTable      = 1146 // ER_NO_SUCH_TABLE
)

// isDoneAlready tells whether a statement was refused because what it makes is there, or what it drops is not.
func isDoneAlready(err error) bool {
	switch number(err) {
	case errTableExists, errColumnExists, errKeyExists, errNothingThere:
		return true
	}
	return false
}

// number is the server's error number, or 0 if err did not come from a server.
func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// Check returns an error that wraps [ErrSchema] and names the cure unless the schema has the version of
// the embedded files. It changes nothing: a database without the version table has version 0.
func Check(ctx context.Context, db *sql.DB) error {
	have, want, err := versions(ctx, db)
	switch {
	case err != nil:
		return err
	case have < want:
		return fmt.Errorf("%w: it has version %d, this binary needs %d; run `unstale migrate up`", ErrSchema, have, want)
	}
	return newer(have, want)
}

// Status lists the embedded files and which are applied. It changes nothing: goose would make the version table where there
// is none, or where this account may not read it.
func Status(ctx context.Context, db *sql.DB) (list []*goose.MigrationStatus, err error) {
	p, err := Provider(db)
	if err != nil {
		return nil, err
	}
	have, err := version(ctx, db)
	switch {
	case err != nil:
	case have == 0:
		for _, source := range p.ListSources() {
			list = append(list, &goose.MigrationStatus{Source: source, State: goose.StatePending})
		}
	default:
		list, err = p.Status(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("migrate status: %w", err)
	}
	return list, nil
}

// RefuseNewer returns an error that wraps [ErrSchema] and names the cure if the schema is newer than the embedded files.
func RefuseNewer(ctx context.Context, db *sql.DB) error {
	have, want, err := versions(ctx, db)
	if err != nil {
		return err
	}
	return newer(have, want)
}

func newer(have, want int64) error {
	if have > want {
		return fmt.Errorf("%w: it has version %d, this binary knows %d; deploy the newer binary", ErrSchema, have, want)
	}
	return nil
}

// versions returns the version that the schema has and that of the embedded files.
func versions(ctx context.Context, db *sql.DB) (have, want int64, err error) {
	p, err := Provider(db)
	if err != nil {
		return 0, 0, err
	}
	sources := p.ListSources()
	have, err = version(ctx, db)
	return have, sources[len(sources)-1].Version, err
}

// Contract: no lock, a handful of rows in goose's version table; goose appends a row for an up and deletes
// it for a down, so the highest applied one is the version.
const versionSQL = "SELECT COALESCE(MAX(version_id), 0) FROM " + VersionTable + " WHERE is_applied"

// Contract: no lock, the dictionary of the current schema alone. It does not show tables to which the account has no right.
const tableSQL = `SELECT COUNT(*) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = ?`

// version asks the table itself: the dictionary hides one that may not be read, and the schema would seem to be empty.
func version(ctx context.Context, db *sql.DB) (n int64, err error) {
	err = db.QueryRowContext(ctx, versionSQL).Scan(&n)
	switch number(err) {
	case errNoTable:
		return 0, nil
	case errNoRight:
		return 0, fmt.Errorf("read schema version: %w; if the tables are there, GRANT SELECT ON %s to this account, otherwise run `unstale migrate up` first",
			err, VersionTable)
	}
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return n, nil
}
