package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
)

// declaration matches the line of a migration that package migrations asks for: the oldest code,
// and what the previous binary does.
var declaration = regexp.MustCompile(`(?m)^-- Oldest code: (\d+)\. The previous binary \S`)

// firstDeclared is the oldest code that the baseline declares.
const firstDeclared = 21

// TestEachFileDeclaresTheOldestCode applies the files one by one. Each file declares the number
// that the schema then has, and lets the previous binary run.
func TestEachFileDeclaresTheOldestCode(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), testenv.MySQL(t).DB
	p, err := migrations.Provider(db)
	if err != nil {
		t.Fatal(err)
	}
	var last, oldest int64
	for _, source := range p.ListSources() {
		if _, err := p.UpByOne(ctx); err != nil {
			t.Fatal(err)
		}
		previous := last
		last = source.Version
		text, err := os.ReadFile(source.Path)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "-- +goose Up")
		found := declaration.FindStringSubmatch(head)
		if found == nil {
			t.Errorf("%s: its head comment has no line such as \"-- Oldest code: %d. The previous binary ...\"; see migrations/doc.go", source.Path, max(oldest, firstDeclared))
			continue
		}
		declared, err := strconv.ParseInt(found[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if have, err := schema.Oldest(ctx, db); err != nil || have != declared {
			t.Errorf("%s declares %d, and the schema %d, %v", source.Path, declared, have, err)
		}
		if declared < oldest || declared > max(previous, firstDeclared) {
			t.Errorf("%s declares %d; it has to let the previous binary run (%d), and no older one than the file before it (%d)", source.Path, declared, previous, oldest)
		}
		oldest = declared
	}
	if last != schema.Version {
		t.Errorf("the last file has version %d, schema.Version is %d", last, schema.Version)
	}
}

// newer makes the schema one of a later release, which declares the oldest code that may run on it.
func newer(t *testing.T, oldest int) *sql.DB {
	t.Helper()
	db := testenv.MySQL(t).DB
	if _, err := migrations.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO "+migrations.VersionTable+" (version_id, is_applied, oldest) VALUES (99, 1, ?)", oldest); err != nil {
		t.Fatal(err)
	}
	return db
}

// A newer schema that lets this code run passes. Up has nothing to do, and Down leaves the step to
// the binary that has it.
func TestANewerSchemaThatLetsThisCodeRun(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), newer(t, schema.Version)
	for name, err := range map[string]error{"check": migrations.Check(ctx, db), "refuse": migrations.RefuseNewer(ctx, db)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if done, err := migrations.Up(ctx, db); err != nil || len(done) != 0 {
		t.Errorf("up: %d steps, %v", len(done), err)
	}
	for _, force := range []bool{false, true} {
		r, err := migrations.Down(ctx, db, force)
		if r != nil || !errors.Is(err, migrations.ErrSchema) || !strings.Contains(err.Error(), fmt.Sprintf("it has version 99, and this binary has the steps up to %d; take it back with the newer binary", schema.Version)) {
			t.Errorf("down: %v, %v", r, err)
		}
	}
	if have, err := schema.Read(ctx, db); err != nil || have != 99 {
		t.Errorf("version %d, %v", have, err)
	}
}

// A newer schema that does not let this code run is refused and left alone.
func TestANewerSchemaThatRefusesThisCode(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), newer(t, schema.Version+1)
	for name, ask := range map[string]func(context.Context, *sql.DB) error{
		"check":  migrations.Check,
		"refuse": migrations.RefuseNewer,
		"up":     func(ctx context.Context, db *sql.DB) error { _, err := migrations.Up(ctx, db); return err },
	} {
		wanted := fmt.Sprintf("it has version 99, which needs a binary of version %d or later, and this binary has %d; deploy the newer binary", schema.Version+1, schema.Version)
		if err := ask(ctx, db); !errors.Is(err, migrations.ErrSchema) || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := migrations.Down(ctx, db, true); r != nil || !errors.Is(err, migrations.ErrSchema) {
		t.Errorf("down: %v, %v", r, err)
	}
}
