package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed *.sql
var files embed.FS

// VersionTable is where goose keeps the schema's version. It is not goose's default name, so that an
// application which migrates its own tables with goose keeps a version of its own.
const VersionTable = "cache_outbox_version"

// ErrSchema says that the database's schema is not the one that this binary was built for.
var ErrSchema = errors.New("schema does not match this binary")

// Provider returns goose's provider over the embedded files, for reading. [Up] and [Down] change the schema: they take
// turns with other processes, the provider's own verbs do not. It does not close db.
func Provider(db *sql.DB) (*goose.Provider, error) {
	p, err := goose.NewProvider(goose.DialectMySQL, db, files,
		goose.WithTableName(VersionTable),
		goose.WithDisableGlobalRegistry(true),
	)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return p, nil
}

// Up applies whatever is missing and returns what it applied. Running it again is harmless.
func Up(ctx context.Context, db *sql.DB) ([]*goose.MigrationResult, error) {
	p, err := Provider(db)
	if err != nil {
		return nil, err
	}
	var done []*goose.MigrationResult
	err = inTurn(ctx, db, func() (err error) {
		done, err = p.Up(ctx)
		return err
	})
	if err != nil {
		return done, fmt.Errorf("migrate up: %w", err)
	}
	return done, nil
}

// ErrRows says that a migration was not taken back, because its table has rows.
var ErrRows = errors.New("has rows, which would be lost; let the worker empty it first, or force it")

// Down takes back the last migration and returns it, or nil if none is applied. Unless force is set, a table
// with rows stays: the error wraps [ErrRows].
func Down(ctx context.Context, db *sql.DB, force bool) (*goose.MigrationResult, error) {
	p, err := Provider(db)
	if err != nil {
		return nil, err
	}
	var done *goose.MigrationResult
	err = inTurn(ctx, db, func() error {
		have, err := version(ctx, db)
		if err != nil || have == 0 {
			return err
		}
		if !force {
			if err := refuseRows(ctx, db, p, have); err != nil {
				return err
			}
		}
		done, err = p.Down(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("migrate down: %w", err)
	}
	return done, nil
}

// refuseRows finds the table of a migration by its file's name: 00002_delayed.sql makes cache_outbox_delayed. One that
// makes no table takes no row with it.
func refuseRows(ctx context.Context, db *sql.DB, p *goose.Provider, version int64) error {
	for _, source := range p.ListSources() {
		if source.Version != version {
			continue
		}
		_, noun, _ := strings.Cut(strings.TrimSuffix(source.Path, ".sql"), "_")
		table := strings.TrimSuffix("cache_outbox_"+noun, "_outbox")
		var made, found bool
		if err := db.QueryRowContext(ctx, tableSQL, table).Scan(&made); err != nil || !made {
			return err
		}
		// Contract: no lock, one row.
		if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+table+")").Scan(&found); err != nil {
			return fmt.Errorf("look for rows in %s: %w", table, err)
		}
		if found {
			return fmt.Errorf("table %s %w", table, ErrRows)
		}
	}
	return nil
}

// Check returns an error that wraps [ErrSchema] and names the cure unless the schema has the version of
// the embedded files. It changes nothing: a database without the version table has version 0.
func Check(ctx context.Context, db *sql.DB) error {
	p, err := Provider(db)
	if err != nil {
		return err
	}
	sources := p.ListSources()
	want := sources[len(sources)-1].Version
	have, err := version(ctx, db)
	switch {
	case err != nil:
		return err
	case have < want:
		return fmt.Errorf("%w: it has version %d, this binary needs %d; run `unstale migrate up`", ErrSchema, have, want)
	case have > want:
		return fmt.Errorf("%w: it has version %d, this binary knows %d; deploy the newer binary", ErrSchema, have, want)
	}
	return nil
}

// Contract: no lock, a handful of rows in goose's version table; goose appends a row for an up and deletes
// it for a down, so the highest applied one is the version.
const versionSQL = "SELECT COALESCE(MAX(version_id), 0) FROM " + VersionTable + " WHERE is_applied"

// Contract: no lock, the dictionary of the current schema alone.
const tableSQL = `SELECT COUNT(*) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = ?`

func version(ctx context.Context, db *sql.DB) (int64, error) {
	var n int64
	if err := db.QueryRowContext(ctx, tableSQL, VersionTable).Scan(&n); err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	if n == 0 {
		return 0, nil
	}
	if err := db.QueryRowContext(ctx, versionSQL).Scan(&n); err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return n, nil
}
