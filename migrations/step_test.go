package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// A step that is refused its lock while an orphan runs is retried, reports it once, and finds the
// result of the orphan.
func TestUpBehindASlowOrphan(t *testing.T) {
	t.Parallel()
	ctx, hasty, db, holder := refusedALock(t)
	orphan := make(chan error, 1)
	go func() {
		_, err := db.Exec(stepSQL)
		orphan <- err
	}()
	testenv.Eventually(t, "the orphan waits", func() bool { return waiting(t, db) == 1 })
	var notices []string
	done, err := migrations.Up(ctx, hasty, laterSteps(t), migrations.Notify(func(notice string) {
		notices = append(notices, notice)
		if err := errors.Join(holder.Commit(), <-orphan); err != nil {
			t.Error(err)
		}
	}))
	if err != nil || len(done) != 2 {
		t.Errorf("%d steps, %v", len(done), err)
	}
	if len(notices) != 1 || !strings.HasPrefix(notices[0], "step 00033_column.sql waits for a lock on its table; a statement of a killed migration") {
		t.Errorf("notices: %q", notices)
	}
	if err := migrations.Check(ctx, db); err != nil {
		t.Error(err)
	}
}

// Up returns when ctx ends while a step waits for a lock.
func TestUpIsInterruptedBetweenTries(t *testing.T) {
	t.Parallel()
	ctx, hasty, _, holder := refusedALock(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done, err := migrations.Up(ctx, hasty, laterSteps(t), migrations.Notify(func(string) { cancel() }))
	if len(done) != 0 || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "while step 00033_column.sql waited for a lock") {
		t.Errorf("%d steps, %v", len(done), err)
	}
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Up(t.Context(), hasty, laterSteps(t)); err != nil {
		t.Error(err)
	}
}

// A table that gets rows while its step back waits for the lock stays, and so do all others.
func TestDownLooksForRowsBeforeEachTry(t *testing.T) {
	t.Parallel()
	db := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	for range files - 1 {
		if _, err := migrations.Down(t.Context(), db.DB, false); err != nil {
			t.Fatal(err)
		}
	}
	holder, err := db.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }()
	if _, err := holder.Exec("INSERT INTO cache_outbox_dead (entity, entity_id, created_at, first_id, reason, error, map_version) VALUES ('product', '1', UTC_TIMESTAMP(6), 1, 'x', '', '')"); err != nil {
		t.Fatal(err)
	}
	r, err := migrations.Down(t.Context(), impatient(t, db), false, migrations.Notify(func(string) {
		if err := holder.Commit(); err != nil {
			t.Error(err)
		}
	}))
	if r != nil || !errors.Is(err, migrations.ErrRows) || countTables(t, db.DB) != len(tables) || !strings.Contains(err.Error(), "; retry or discard its rows by `unstale dead` first, or use --force") {
		t.Errorf("%v, %v", r, err)
	}
}

// stepSQL is the statement of a step that follows the baseline.
const stepSQL = "ALTER TABLE cache_outbox_sweeps ADD COLUMN later INT NULL COMMENT 'a test'"

// laterSteps makes Up take two steps that follow the baseline.
func laterSteps(t *testing.T) migrations.Option {
	t.Helper()
	baseline := fmt.Sprintf("%05d_baseline.sql", schema.Baseline)
	text, err := os.ReadFile(baseline)
	if err != nil {
		t.Fatal(err)
	}
	column := `-- +goose Up
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'cache_outbox_sweeps' AND column_name = 'later') > 0, 'DO 0',
  '` + strings.ReplaceAll(stepSQL, "'", "''") + `');
PREPARE ddl FROM @ddl;
EXECUTE ddl;
DEALLOCATE PREPARE ddl;
`
	return migrations.Files(fstest.MapFS{
		baseline: {Data: text},
		fmt.Sprintf("%05d_column.sql", schema.Baseline+1): {Data: []byte(column)},
		fmt.Sprintf("%05d_table.sql", schema.Baseline+2):  {Data: []byte("-- +goose Up\nCREATE TABLE IF NOT EXISTS cache_outbox_more (id INT PRIMARY KEY);\n")},
	})
}

// heldBack returns a schema at the baseline. The first of the later steps gets no lock before the
// transaction ends.
func heldBack(t *testing.T) (*testenv.Database, *sql.Tx) {
	t.Helper()
	env := atBaseline(t)
	holder, err := env.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Rollback() }) // no effect after Commit
	if err := holder.QueryRow("SELECT COUNT(*) FROM cache_outbox_sweeps").Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	return env, holder
}

// refusedALock is that with a pool that does not wait long.
func refusedALock(t *testing.T) (ctx context.Context, hasty, db *sql.DB, holder *sql.Tx) {
	t.Helper()
	env, holder := heldBack(t)
	return t.Context(), impatient(t, env), env.DB, holder
}

// impatient returns a pool that waits a second for a lock.
func impatient(t *testing.T, env *testenv.Database) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["lock_wait_timeout"] = "1"
	return testenv.OpenDB(t, cfg.FormatDSN())
}
