// Package schematest gives test databases the schema of package migrations.
package schematest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/unstale/unstale/migrations"
)

// A schema holds the statements that create what [migrations.Up] leaves in an empty database.
type schema struct {
	tables   []string // CREATE TABLE
	versions []any    // applied migrations, in their order
}

// counter matches where the IDs of a table stand.
var counter = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

// schemas has one entry for each version of a server that the tests of a binary use.
var schemas = struct {
	sync.Mutex
	of map[string]*schema
}{of: map[string]*schema{}}

// A TB is the part of [testing.TB] that Up needs: the lab imports this package, and no test library.
type TB interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
}

// Up brings the empty database of db to the newest version of the schema. Only the first call of a
// test binary runs the migrations; the others create the tables that it left, in a fifth of the
// time. With the race detector, goose also allocates much while it parses them: see
// findings/goose-parses-with-the-race-detector.sh. Tests of the migrations themselves call
// [migrations.Up].
func Up(t TB, db *sql.DB) {
	t.Helper()
	if err := up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
}

func up(ctx context.Context, db *sql.DB) error {
	var server string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&server); err != nil {
		return fmt.Errorf("ask for the version of the server: %w", err)
	}
	s, done, err := first(ctx, db, server)
	if err != nil || done {
		return err
	}
	return s.create(ctx, db)
}

// first runs the migrations in db unless another call did so on a server of that version. It
// reports whether db has the schema now. Concurrent calls wait.
func first(ctx context.Context, db *sql.DB, server string) (*schema, bool, error) {
	schemas.Lock()
	defer schemas.Unlock()
	if s := schemas.of[server]; s != nil {
		return s, false, nil
	}
	if _, err := migrations.Up(ctx, db); err != nil {
		return nil, false, err
	}
	s, err := read(ctx, db)
	if err != nil {
		return nil, false, fmt.Errorf("read the schema of a test database: %w", err)
	}
	schemas.of[server] = s
	return s, true, nil
}

func read(ctx context.Context, db *sql.DB) (*schema, error) {
	names, err := column(ctx, db, "SHOW TABLES")
	if err != nil {
		return nil, err
	}
	s := &schema{}
	for _, name := range names {
		var table, statement string
		if err := db.QueryRowContext(ctx, fmt.Sprintf("SHOW CREATE TABLE `%s`", name)).Scan(&table, &statement); err != nil {
			return nil, err
		}
		s.tables = append(s.tables, counter.ReplaceAllString(statement, ""))
	}
	s.versions, err = column(ctx, db, "SELECT version_id FROM cache_outbox_version WHERE is_applied ORDER BY id")
	return s, err
}

// create executes the statements and gives the outbox an ID of its own, as the baseline does.
func (s *schema) create(ctx context.Context, db *sql.DB) error {
	for _, statement := range s.tables {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create a table of a test database: %w", err)
		}
	}
	insert := "INSERT INTO cache_outbox_version (version_id, is_applied) VALUES " +
		strings.TrimSuffix(strings.Repeat("(?, TRUE), ", len(s.versions)), ", ")
	if _, err := db.ExecContext(ctx, insert, s.versions...); err != nil {
		return fmt.Errorf("fill the version table of a test database: %w", err)
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	if _, err := db.ExecContext(ctx, "INSERT INTO cache_outbox_source (one, id) VALUES (1, ?)", hex.EncodeToString(id)); err != nil {
		return fmt.Errorf("give a test database its source: %w", err)
	}
	return nil
}

// column returns the only column of what a query finds, as text.
func column(ctx context.Context, db *sql.DB, query string) (found []any, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		found = append(found, value)
	}
	return found, rows.Err()
}
