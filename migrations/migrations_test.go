package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// files is the number of migrations.
var files = func() int {
	list, err := filepath.Glob("0*.sql")
	if err != nil {
		panic(err)
	}
	return len(list)
}()

// tables are those of the baseline.
var tables = []string{
	"cache_outbox", "cache_outbox_delayed", "cache_outbox_dead", "cache_outbox_sweeps", "cache_outbox_sweeper", "cache_outbox_journal", "cache_outbox_summaries",
	"cache_outbox_control", "cache_outbox_audit", "cache_outbox_workers", "cache_outbox_minutes", "cache_outbox_stale", "cache_outbox_shadow", "cache_outbox_locks", "cache_outbox_source",
}

func countTables(t *testing.T, db *sql.DB) int {
	t.Helper()
	var n int
	err := db.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ('" +
		strings.Join(tables, "','") + "')").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Up creates the tables, running it again is harmless, Down removes them, and Check names the fix.
func TestUpCheckDown(t *testing.T) {
	t.Parallel()
	ctx, db := context.Background(), testenv.MySQL(t).DB
	err := migrations.Check(ctx, db)
	if !errors.Is(err, migrations.ErrSchema) || !strings.Contains(err.Error(), fmt.Sprintf("has version 0, this binary needs %d; run `unstale migrate up`", schema.Version)) {
		t.Errorf("check of an empty database: %v", err)
	}
	for want := files; want >= 0; want -= files { // all applied at first, none the second time
		done, err := migrations.Up(ctx, db)
		if err != nil || len(done) != want {
			t.Fatalf("up applied %d, %v; wanted %d", len(done), err, want)
		}
	}
	if err := migrations.Check(ctx, db); err != nil {
		t.Errorf("check after up: %v", err)
	}
	if list, err := schema.ReadIndexes(ctx, db); err != nil || !slices.Equal(list, schema.Indexes) {
		t.Errorf("indexes after up: %q, %v\nwanted %q", list, err, schema.Indexes)
	}
	for left := files; left > 0; left-- {
		if n := countTables(t, db); n != len(tables) {
			t.Errorf("%d tables after %d migrations, wanted %d", n, left, len(tables))
		}
		if r, err := migrations.Down(ctx, db, false); err != nil || r == nil {
			t.Fatal(r, err)
		}
	}
	if n := countTables(t, db); n != 0 {
		t.Errorf("%d tables are left", n)
	}
	if r, err := migrations.Down(ctx, db, false); err != nil || r != nil {
		t.Errorf("down of an empty database: %v, %v", r, err)
	}
	if _, err := migrations.Up(ctx, db); err != nil {
		t.Errorf("up after down: %v", err)
	}
}

// Replicas that start together run one at a time: one applies everything, the others find it done.
func TestReplicasTakeTurns(t *testing.T) {
	t.Parallel()
	ctx, env := context.Background(), testenv.MySQL(t)
	const replicas = 6
	var (
		start   = make(chan struct{})
		mu      sync.Mutex
		applied []int
		group   sync.WaitGroup
	)
	for range replicas {
		db, err := sql.Open("mysql", env.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		group.Go(func() {
			<-start
			done, err := migrations.Up(ctx, db)
			if err != nil {
				t.Errorf("up: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			applied = append(applied, len(done))
		})
	}
	close(start)
	group.Wait()
	total := 0
	for _, n := range applied {
		total += n
	}
	if total != files {
		t.Errorf("applied %v, wanted %d in all", applied, files)
	}
	if err := migrations.Check(ctx, env.DB); err != nil {
		t.Error(err)
	}
}

// A run that died between making goose's version table and writing its first row is repaired as
// well.
func TestUpAfterAnEmptyVersionTable(t *testing.T) {
	t.Parallel()
	ctx, db := context.Background(), testenv.MySQL(t).DB
	if _, err := migrations.Up(ctx, db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DELETE FROM " + migrations.VersionTable); err != nil {
		t.Fatal(err)
	}
	done, err := migrations.Up(ctx, db)
	if err != nil || len(done) != files {
		t.Fatalf("applied %d, %v", len(done), err)
	}
	if err := migrations.Check(ctx, db); err != nil {
		t.Error(err)
	}
}

// Every table has transactions, no matter which engine is the default.
func TestUpWhereMyISAMIsTheDefault(t *testing.T) {
	t.Parallel()
	ctx, env := context.Background(), testenv.MySQL(t)
	config, err := mysql.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	config.Params = map[string]string{"default_storage_engine": "'MyISAM'"}
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := migrations.Up(ctx, db); err != nil {
		t.Fatal(err)
	}
	var others string
	err = db.QueryRow("SELECT COALESCE(GROUP_CONCAT(table_name, ' ', engine), '') FROM information_schema.tables WHERE table_schema = DATABASE() AND engine <> 'InnoDB'").Scan(&others)
	if err != nil || others != "" {
		t.Errorf("%s, %v", others, err)
	}
}
