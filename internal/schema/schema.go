// Package schema says which version of the outbox's tables this code is for, and which one a
// database has. Package migrations changes it; a worker only looks, and so links nothing that
// migrates.
//
// It also has what changes a schema beside a running shop: processes take turns, and a statement
// that has to wait for a table lets through what has queued behind it.
package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Version is that of the last file of package migrations.
const Version = 32

// Table is where goose keeps the version. It is not goose's default name, so that an application
// which migrates its own tables with goose keeps a version of its own.
const Table = "cache_outbox_version"

// OwnTriggers is a condition on information_schema.triggers. It selects the triggers of "unstale
// capture" by their names, and copies with other names by their text. For example, gh-ost makes
// copies.
const OwnTriggers = `trigger_schema = DATABASE()
AND (CONVERT(trigger_name USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^unstale_(insert|update|delete)_[0-9a-f]{16}(_[0-9]+)?$'
OR action_statement LIKE 'BEGIN%IF NOT (CAST(@unstale\_capture AS BINARY) <=> ''off'') THEN%cache\_outbox%')`

// Err says that the database's schema is not the one that this binary was built for.
var Err = errors.New("schema does not match this binary")

// Check returns an error that wraps [Err] and names the fix, unless this code may run on the
// schema. It may run on its own version, and on a newer one that declares so. It changes nothing: a
// database without the version table has version 0.
func Check(ctx context.Context, db *sql.DB) error {
	have, err := Read(ctx, db)
	switch {
	case err != nil:
		return err
	case have < Version:
		return fmt.Errorf("%w: it has version %d, this binary needs %d; run `unstale migrate up`", Err, have, Version)
	}
	return mayRun(ctx, db, have)
}

// RefuseNewer returns an error that wraps [Err] and names the fix if the schema is newer than this
// code and does not let it run. It is for a tool that may run before a migration: an older schema
// passes, unlike in [Check].
func RefuseNewer(ctx context.Context, db *sql.DB) error {
	have, err := Read(ctx, db)
	if err != nil {
		return err
	}
	return mayRun(ctx, db, have)
}

func mayRun(ctx context.Context, db *sql.DB, have int64) error {
	if have <= Version {
		return nil
	}
	oldest, err := Oldest(ctx, db)
	if err == nil && oldest > Version {
		err = fmt.Errorf("%w: it has version %d, which needs a binary of version %d or later, and this binary has %d; deploy the newer binary",
			Err, have, oldest, Version)
	}
	return err
}

// Contract: no lock, a handful of rows in goose's version table.
const oldestSQL = "SELECT COALESCE(MAX(oldest), 0) FROM " + Table + " WHERE is_applied"

// Oldest returns the version of the oldest code that may run on the schema. The schema must have at
// least version 21, the first that declares it as package migrations describes.
func Oldest(ctx context.Context, db *sql.DB) (version int64, err error) {
	if err := db.QueryRowContext(ctx, oldestSQL).Scan(&version); err != nil {
		return 0, fmt.Errorf("read the oldest code that may run on the schema: %w", err)
	}
	return version, nil
}

// Contract: no lock, a handful of rows in goose's version table; goose appends a row for an up and
// deletes it for a down, so the highest applied one is the version.
const versionSQL = "SELECT COALESCE(MAX(version_id), 0) FROM " + Table + " WHERE is_applied"

// Read asks the table itself: the dictionary hides one that may not be read, and the schema would
// seem to be empty.
func Read(ctx context.Context, db *sql.DB) (version int64, err error) {
	err = db.QueryRowContext(ctx, versionSQL).Scan(&version)
	switch number := mysqlerr.Number(err); {
	case err == nil:
		return version, nil
	case number == mysqlerr.NoTable:
		return 0, nil
	case number == mysqlerr.NoRight:
		return 0, fmt.Errorf("read schema version: %w; if the tables are there, GRANT SELECT ON %s to this account, otherwise run `unstale migrate up` first",
			err, Table)
	}
	return 0, fmt.Errorf("read schema version: %w", err)
}
