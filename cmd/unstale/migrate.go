package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/migrations"
)

// migrateVerb returns a subcommand that works on a database.
func migrateVerb(p process, use, short, example string, run func(ctx context.Context, s *session.Sessions) error) *cobra.Command {
	f := &mysqlFlags{}
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example,
		Annotations: map[string]string{stopNote: string(stopOrderly)}, // a step is finished
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.inSessions("migrate", func(db *session.Sessions) error {
				defer context.AfterFunc(cmd.Context(), func() {
					fmt.Fprintln(p.Err, "stopping: the current step is finished, unless it waits for a lock; a second signal ends the process immediately")
				})()
				return run(cmd.Context(), db)
			})
		},
	}
	f.addMySQLFlags(cmd.Flags())
	return cmd
}

// noticesTo says on stderr what a step waits for.
func noticesTo(p process) migrations.Option {
	return migrations.Notify(func(notice string) { fmt.Fprintln(p.Err, notice) })
}

func newMigrateUp(p process) *cobra.Command {
	var dry, asJSON bool
	cmd := migrateVerb(p, "up", "Apply missing migrations",
		"  unstale migrate up --mysql-dsn 'user:password@tcp(127.0.0.1:3306)/shop'\n  unstale migrate up --dry-run",
		func(ctx context.Context, s *session.Sessions) error {
			if asJSON && !dry {
				return usageError{errors.New("--json needs --dry-run")}
			}
			if dry {
				return previewed(ctx, p, s, asJSON)
			}
			done, err := migrations.Up(ctx, s.SchemaDB(), noticesTo(p))
			for _, r := range done {
				fmt.Fprintf(p.Out, "applied %s in %s\n", r.Source.Path, r.Duration.Round(time.Millisecond))
			}
			if err != nil || len(done) > 0 {
				return err
			}
			return nothingToApply(ctx, p, s)
		})
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the SQL for reading, its locks and its time with ten million rows, and apply nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "with --dry-run: print one JSON object")
	return cmd
}

func newMigratePrint(p process) *cobra.Command {
	return &cobra.Command{
		Use:   "print",
		Short: "Print the tables as plain CREATE TABLE statements",
		Long: `Print the tables of the outbox as plain CREATE TABLE statements, for tools that take nothing else,
such as VTGate or a deploy request of Vitess. Then run "unstale migrate up" on each shard: it finds
the tables, and inserts the outbox's ID and the version.`,
		Example: "  unstale migrate print > outbox.sql",
		RunE: func(*cobra.Command, []string) error {
			list, err := migrations.Tables()
			for _, table := range list {
				fmt.Fprintf(p.Out, "%s;\n\n", table)
			}
			return err
		},
	}
}

func nothingToApply(ctx context.Context, p process, s *session.Sessions) error {
	have, known, err := migrations.Versions(ctx, s.SchemaDB())
	switch {
	case err != nil:
		return err
	case have > known:
		fmt.Fprintf(p.Out, "nothing to apply: "+newerSchema, have, known)
	default:
		fmt.Fprintln(p.Out, "nothing to apply: the schema is up to date")
	}
	return nil
}

// previewed prints what "migrate up" would apply, as SQL with comments.
func previewed(ctx context.Context, p process, s *session.Sessions, asJSON bool) error {
	list, err := migrations.Previews(ctx, s.SchemaDB())
	if err != nil {
		return err
	}
	type migration struct {
		migrations.Preview
		Locks string `json:"locks"`
	}
	out := struct {
		Migrations []migration `json:"migrations"`
	}{[]migration{}}
	for _, m := range list {
		out.Migrations = append(out.Migrations, migration{m, m.Locks()})
	}
	switch {
	case asJSON:
		return output.JSON(p.Out, out)
	case len(list) == 0:
		return nothingToApply(ctx, p, s)
	}
	fmt.Fprint(p.Out, forReading)
	for _, m := range out.Migrations {
		fmt.Fprintf(p.Out, "-- %s\n-- locks: %s\n", m.File, m.Locks)
		if m.Measured != "" {
			fmt.Fprintf(p.Out, "-- ten million rows: %s\n", m.Measured)
		}
		fmt.Fprintf(p.Out, "%s\n\n", m.SQL)
	}
	return nil
}

// forReading begins the SQL of --dry-run: a client that runs it records no version.
const forReading = "-- This SQL is for reading, not for a client. Apply it with \"unstale migrate up\", which also creates and\n" +
	"-- fills cache_outbox_version, the table of applied migrations.\n\n"

// newerSchema reports that a schema is newer than this binary and compatible.
const newerSchema = "the schema has version %d, which is newer than this binary's %d and declares that the binary may run on it\n"

func newMigrateDown(p process) *cobra.Command {
	var force bool
	cmd := migrateVerb(p, "down", "Revert the last migration",
		"  unstale migrate down          # one step\n  unstale migrate down --force  # even if rows are lost",
		func(ctx context.Context, s *session.Sessions) error {
			// --force as well: it gives up rows, not writes
			if err := seesTriggers(ctx, s.SchemaDB()); err != nil {
				return err
			}
			r, err := migrations.Down(ctx, s.SchemaDB(), force, noticesTo(p))
			if err != nil {
				return err
			}
			if r == nil {
				fmt.Fprintln(p.Out, "nothing to take back: no migration is applied")
				return nil
			}
			fmt.Fprintf(p.Out, "took back %s\n", r.Source.Path)
			return nil
		})
	cmd.Flags().BoolVar(&force, "force", false, "drop the table even if it has rows, which are lost; never under a trigger")
	return cmd
}

// seesTriggers returns an error unless the account sees all triggers of its database. A hidden
// trigger may need the outbox.
func seesTriggers(ctx context.Context, db *sql.DB) error {
	g, err := capture.SessionGrants(ctx, db)
	if err != nil {
		return err
	}
	var database string
	if err := db.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
		return err
	}
	if g == nil || !g.On("TRIGGER", database, "") {
		return fmt.Errorf("migrate down: the account does not see all triggers, and a hidden one may need the outbox; GRANT TRIGGER ON `%s`.* to it", strings.ReplaceAll(database, "`", "``"))
	}
	return nil
}

func newMigrateStatus(p process) *cobra.Command {
	var asJSON bool
	cmd := migrateVerb(p, "status", "List the migrations and which are applied", "  unstale migrate status --json",
		func(ctx context.Context, s *session.Sessions) error {
			list, err := migrations.Status(ctx, s.SchemaDB())
			if err != nil {
				return err
			}
			have, known, err := migrations.Versions(ctx, s.SchemaDB())
			if err != nil {
				return err
			}
			if err := printMigrations(p, list, have, asJSON); err != nil {
				return err
			}
			if err := migrations.RefuseNewer(ctx, s.SchemaDB()); err != nil {
				return err
			}
			if have > known && !asJSON {
				fmt.Fprintf(p.Out, newerSchema, have, known)
			}
			return nil
		})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func printMigrations(p process, list []*goose.MigrationStatus, have int64, asJSON bool) error {
	type migration struct {
		Version   int64      `json:"version"`
		File      string     `json:"file"`
		Applied   bool       `json:"applied"`
		AppliedAt *time.Time `json:"applied_at"`
	}
	out := struct {
		// may be newer than the last migration of this binary
		SchemaVersion int64       `json:"schema_version"`
		Migrations    []migration `json:"migrations"`
	}{SchemaVersion: have, Migrations: []migration{}}
	for _, s := range list {
		m := migration{Version: s.Source.Version, File: s.Source.Path, Applied: s.State == goose.StateApplied}
		if m.Applied {
			m.AppliedAt = &s.AppliedAt
		}
		out.Migrations = append(out.Migrations, m)
	}
	if asJSON {
		return output.JSON(p.Out, out)
	}
	for _, m := range out.Migrations {
		state := "pending"
		if m.Applied {
			state = "applied " + m.AppliedAt.Format(time.DateTime)
		}
		fmt.Fprintf(p.Out, "%-28s %s\n", m.File, state)
	}
	return nil
}
