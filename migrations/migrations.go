package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/unstale/unstale/internal/schema"
)

//go:embed *.sql
var files embed.FS

// VersionTable is where goose keeps the version of the schema. It is not goose's default name, so
// an application that migrates its own tables with goose has a separate version.
const VersionTable = "cache_outbox_version"

// ErrSchema means that the schema of the database is not the one that this binary requires.
var ErrSchema = schema.Err

// Provider returns goose's provider over the embedded files, for reading. [Up] and [Down] change
// the schema under a lock between processes, which the methods of the provider do not take. It does
// not close db.
func Provider(db *sql.DB) (*goose.Provider, error) { return newStepper(nil).provider(db) }

func (s *stepper) provider(db *sql.DB) (*goose.Provider, error) {
	store, err := database.NewStore(database.DialectMySQL, VersionTable)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectCustom, db, s.files,
		goose.WithStore(versionStore{store.(database.StoreExtender)}), // goose's own stores are
		goose.WithDisableGlobalRegistry(true),
	)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return p, nil
}

// A versionStore is goose's store for MySQL, and makes a table with transactions no matter what
// default_storage_engine is.
type versionStore struct{ database.StoreExtender }

const createVersionSQL = "CREATE TABLE " + VersionTable + ` (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, version_id BIGINT NOT NULL,
is_applied BOOLEAN NOT NULL, tstamp DATETIME NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (id)) ENGINE = InnoDB`

// CreateVersionTable implements [database.Store].
func (versionStore) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	if _, err := db.ExecContext(ctx, createVersionSQL); err != nil {
		return fmt.Errorf("create %s: %w", VersionTable, err)
	}
	return nil
}

// Up applies missing migrations and returns those that it applied, even with an error. Processes
// that migrate one database run one at a time, under a user lock of MySQL (GET_LOCK). If several
// servers take writes, a lease in the table cache_outbox_turn also keeps them apart. Up waits up
// to two minutes for each. db must allow two connections. Running it again is harmless. When ctx
// ends, Up finishes the current step and begins no other; the error reports it. It retries a step
// that is refused a lock (1205) for two minutes, or until ctx ends.
//
// Up applies nothing to a newer schema. The error then wraps [ErrSchema], unless the schema
// declares that this code may run on it. Up applies nothing to a schema that is older than the first
// file, and not empty: the error wraps [ErrSchema], and has the commands to migrate it.
func Up(ctx context.Context, db *sql.DB, options ...Option) (done []*goose.MigrationResult, err error) {
	steps := newStepper(options)
	p, err := steps.provider(db)
	if err != nil {
		return nil, err
	}
	err = steps.inTurn(ctx, db, func() error {
		if err := schema.RefuseOlder(ctx, db); err != nil {
			return err
		}
		if newer, err := isNewer(ctx, db, p); newer || err != nil {
			return err
		}
		for {
			if err := ctx.Err(); err != nil {
				return interrupted(p, done, err)
			}
			r, err := steps.step(ctx, p.UpByOne)
			switch {
			case errors.Is(err, goose.ErrNoNextVersion):
				return nil
			case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
				return interrupted(p, done, err)
			case err != nil:
				return err
			}
			done = append(done, r)
		}
	})
	if err != nil {
		return done, fmt.Errorf("migrate up: %w", err)
	}
	return done, nil
}

// lastFile returns the file with the highest version.
func lastFile(p *goose.Provider) *goose.Source {
	sources := p.ListSources()
	return sources[len(sources)-1]
}

// isNewer reports whether the schema is newer than the files. It returns an error if that schema
// does not let this code run.
func isNewer(ctx context.Context, db *sql.DB, p *goose.Provider) (bool, error) {
	have, err := schema.Read(ctx, db)
	if err != nil || have <= lastFile(p).Version {
		return false, err
	}
	return true, schema.Check(ctx, db)
}

// interrupted adds how far the steps have come to an error.
func interrupted(p *goose.Provider, done []*goose.MigrationResult, err error) error {
	last := lastFile(p)
	switch n := len(done); {
	case n == 0:
		return fmt.Errorf("interrupted before the first step; run it again: %w", err)
	case done[n-1].Source.Version == last.Version:
		return nil
	default:
		return fmt.Errorf("interrupted after %s, which is applied whole; run it again for the steps up to %s: %w", done[n-1].Source.Path, last.Path, err)
	}
}

// ErrRows means that a migration was not reverted, because its table has rows.
var ErrRows = errors.New("has rows, which would be lost")

// ErrCaptured reports that a trigger names the outbox. Without the outbox, the trigger would fail
// every write to its table.
var ErrCaptured = errors.New("names the outbox, and would fail every write to its table; run `unstale capture drop`, or DROP TRIGGER if it is yours")

func refuseCaptured(ctx context.Context, db *sql.DB) error {
	names, err := schema.Naming(ctx, db)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("trigger %s %w", names[0], ErrCaptured)
	}
	return err
}

// Down takes back the last migration and returns it, or nil if none is applied. The first file has
// all tables, so its step back leaves none. Unless force is set, tables with rows stay, and with them
// all tables of the step: the error wraps [ErrRows] and lists them. While a trigger that the account
// sees names the outbox, nothing is taken back, forced or not: the error wraps [ErrCaptured]. A newer
// schema stays, even if this code may run on it, and so does one that is older than the first file:
// the error wraps [ErrSchema]. Down waits for a lock as [Up] does, and looks for rows before each
// try.
func Down(ctx context.Context, db *sql.DB, force bool, options ...Option) (*goose.MigrationResult, error) {
	steps := newStepper(options)
	p, err := steps.provider(db)
	if err != nil {
		return nil, err
	}
	var done *goose.MigrationResult
	err = steps.inTurn(ctx, db, func() error {
		have, err := schema.Read(ctx, db)
		if err != nil || have == 0 {
			return err
		}
		if last := lastFile(p).Version; have > last {
			return fmt.Errorf("%w: it has version %d, and this binary has the steps up to %d; take it back with the newer binary", ErrSchema, have, last)
		}
		if err := schema.RefuseOlder(ctx, db); err != nil {
			return err
		}
		if err := refuseCaptured(ctx, db); err != nil {
			return err
		}
		done, err = steps.step(ctx, func(ctx context.Context) (*goose.MigrationResult, error) {
			if !force {
				if err := steps.refuseRows(ctx, db, p, have); err != nil {
					return nil, err
				}
			}
			return p.ApplyVersion(ctx, have, false) // Down fails at versions of the steps before the baseline
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("migrate down: %w", err)
	}
	return done, nil
}

// own are the tables whose rows can be dropped without loss: the sweep lock, the position of a scan,
// the worker status and the summaries of the journal, which workers rewrite, and the ID of the
// outbox, which the migration replaces.
var own = []string{"cache_outbox_sweeper", "cache_outbox_summaries", "cache_outbox_source", "cache_outbox_workers"}

// dropped matches the tables that a step back drops.
var dropped = regexp.MustCompile(`DROP TABLE IF EXISTS ([^;]+);`)

// refuseRows returns an error for each table with rows that the step back of a version drops.
func (s *stepper) refuseRows(ctx context.Context, db *sql.DB, p *goose.Provider, version int64) error {
	var all []error
	for _, source := range p.ListSources() {
		if source.Version != version {
			continue
		}
		text, err := fs.ReadFile(s.files, source.Path)
		if err != nil {
			return fmt.Errorf("read %s: %w", source.Path, err)
		}
		_, down, _ := strings.Cut(string(text), "-- +goose Down")
		for _, list := range dropped.FindAllStringSubmatch(down, -1) {
			for table := range strings.SplitSeq(list[1], ",") {
				if table = strings.TrimSpace(table); slices.Contains(own, table) {
					continue
				}
				found, err := hasRows(ctx, db, table)
				if err != nil {
					return err
				}
				if found {
					all = append(all, fmt.Errorf("table %s %w; %s", table, ErrRows, whatToDo(table)))
				}
			}
		}
	}
	return errors.Join(all...)
}

// hasRows reports whether a table has rows. A table that does not exist has none.
func hasRows(ctx context.Context, db *sql.DB, table string) (found bool, err error) {
	var made bool
	if err := db.QueryRowContext(ctx, tableSQL, table).Scan(&made); err != nil || !made {
		return false, err
	}
	some := "SELECT 1 FROM " + table
	if table == "cache_outbox_audit" {
		some += " WHERE action NOT IN ('capture drop', 'capture apply')" // without an outbox they mean nothing
	}
	// Contract: no lock, one row.
	if err := db.QueryRowContext(ctx, "SELECT EXISTS ("+some+")").Scan(&found); err != nil {
		return false, fmt.Errorf("look for rows in %s: %w", table, err)
	}
	return found, nil
}

// whatToDo returns the fix for a table that has rows. Workers empty some of the tables only.
func whatToDo(table string) string {
	return cmp.Or(whatToDoFirst[table], "workers keep it for `unstale history` and `unstale replay`: use --force if you need neither")
}

const letItEmpty = "let a worker empty it first, or use --force"

var whatToDoFirst = map[string]string{
	"cache_outbox":         letItEmpty,
	"cache_outbox_delayed": letItEmpty,
	"cache_outbox_sweeps":  letItEmpty,
	"cache_outbox_dead":    "retry or discard its rows by `unstale dead` first, or use --force",
	"cache_outbox_control": "end the pause by `unstale resume` first, or use --force",
	"cache_outbox_audit":   "no worker empties the record of what operators did: copy it if you need it, and use --force",
	"cache_outbox_locks":   "applications hold locks by it: stop them, and use --force",
	"cache_outbox_stale":   "it has the stale entries that spot checks found: use --force if you do not need them",
	"cache_outbox_shadow":  "it has the differences that shadow reads found: use --force if you do not need them",
	"cache_outbox_minutes": "it has the figures of 30 days that `unstale status` shows: use --force if you do not need them",
}
