package outbox_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
)

// Two outboxes have two IDs, and each keeps its own. An error names what is missing and the fix.
func TestSource(t *testing.T) {
	t.Parallel()
	source := func(env *testenv.Database) string {
		t.Helper()
		id, err := outbox.Source(t.Context(), env.DB)
		if err != nil || len(id) != 32 {
			t.Fatalf("%q, %v", id, err)
		}
		return id
	}
	one, other := migrated(t), migrated(t)
	if id := source(one); id == source(other) || id != source(one) {
		t.Errorf("sources are %s, %s and %s", id, source(other), source(one))
	}
	wantCure := func(what, cure string, db *sql.DB) {
		t.Helper()
		if id, err := outbox.Source(t.Context(), db); err == nil || id != "" || !strings.Contains(err.Error(), cure) {
			t.Errorf("%s: %q, %v", what, id, err)
		}
	}
	var stranger *mysql.MySQLError
	wantCure("no outbox", "unstale migrate up", testenv.MySQL(t).DB)
	db := withoutRight(t, one)
	wantCure("no right", "GRANT SELECT ON cache_outbox_source", db)
	if _, err := outbox.Source(t.Context(), db); !errors.As(err, &stranger) {
		t.Errorf("the server's error is lost: %v", err)
	}
	if _, err := other.DB.ExecContext(t.Context(), "DELETE FROM cache_outbox_source"); err != nil {
		t.Fatal(err)
	}
	wantCure("empty", "INSERT INTO cache_outbox_source", other.DB)
}

// withoutRight returns the database as an account that may only insert rows.
func withoutRight(t *testing.T, env *testenv.Database) *sql.DB {
	t.Helper()
	user := "'" + env.Name + "'@'%'"
	for _, statement := range []string{"CREATE USER " + user + " IDENTIFIED BY 'secret'", "GRANT INSERT (entity, entity_id, params, trace) ON " + env.Name + ".cache_outbox TO " + user} {
		if _, err := env.DB.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	config, err := mysql.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	config.User, config.Passwd = env.Name, "secret"
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() {
		_ = db.Close()
		if _, err := env.DB.Exec("DROP USER " + user); err != nil {
			t.Error(err)
		}
	})
	return db
}
