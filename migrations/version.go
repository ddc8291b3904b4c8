package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"github.com/unstale/unstale/internal/schema"
)

// MySQL's error numbers: https://dev.mysql.com/doc/mysql-errors/en/server-error-reference.html
const (
	errTableExists  = 1050 // ER_TABLE_EXISTS_ERROR
	errColumnExists = 1060 // ER_DUP_FIELDNAME
	errKeyExists    = 1061 // ER_DUP_KEYNAME
	errNothingThere = 1091 // ER_CANT_DROP_FIELD_OR_KEY
	errLockTimeout  = 1205 // ER_LOCK_WAIT_TIMEOUT
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
func Check(ctx context.Context, db *sql.DB) error { return schema.Check(ctx, db) }

// Status lists the embedded files and which are applied. It changes nothing: goose would make the version table where there
// is none, or where this account may not read it.
func Status(ctx context.Context, db *sql.DB) (list []*goose.MigrationStatus, err error) {
	p, err := Provider(db)
	if err != nil {
		return nil, err
	}
	have, err := schema.Read(ctx, db)
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
func RefuseNewer(ctx context.Context, db *sql.DB) error { return schema.RefuseNewer(ctx, db) }

// Contract: no lock, the dictionary of the current schema alone. It does not show tables to which the account has no right.
const tableSQL = `SELECT COUNT(*) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = ?`
