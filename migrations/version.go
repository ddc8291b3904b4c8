package migrations

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/schema"
)

// isDoneAlready reports whether a statement was refused because what it creates exists, or what it
// drops does not.
func isDoneAlready(err error) bool {
	switch mysqlerr.Number(err) {
	case mysqlerr.TableExists, mysqlerr.ColumnExists, mysqlerr.KeyExists, mysqlerr.NothingThere:
		return true
	}
	return false
}

// Check returns an error that wraps [ErrSchema] and names the fix, unless this code may run on the
// schema: on the version of the embedded files, or on a newer one that declares so. It changes
// nothing: a database without the version table has version 0.
func Check(ctx context.Context, db *sql.DB) error { return schema.Check(ctx, db) }

// Versions returns the version of the schema, 0 without one, and the version of the embedded files.
func Versions(ctx context.Context, db *sql.DB) (have, known int64, err error) {
	have, err = schema.Read(ctx, db)
	return have, schema.Version, err
}

// Status lists the embedded files and which are applied. It changes nothing: goose would create a
// missing version table, or fail without the privilege to read it. Its error wraps [ErrSchema] if
// the schema is older than the first file, and not empty.
func Status(ctx context.Context, db *sql.DB) (list []*goose.MigrationStatus, err error) {
	p, err := Provider(db)
	if err != nil {
		return nil, err
	}
	have, err := schema.Read(ctx, db)
	if err == nil {
		err = schema.RefuseOlder(ctx, db)
	}
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

// RefuseNewer returns an error that wraps [ErrSchema] and names the fix if the schema is newer than
// the embedded files and does not let this code run. It is for a tool that may run before [Up]: an
// older schema passes, unlike in [Check].
func RefuseNewer(ctx context.Context, db *sql.DB) error { return schema.RefuseNewer(ctx, db) }

// Contract: no lock, only the dictionary of the current schema. It does not show tables for which
// the account has no privilege.
const tableSQL = `SELECT COUNT(*) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = ?`
