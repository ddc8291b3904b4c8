package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/migrations"
)

func newMigrate(p process) *cobra.Command {
	return group("migrate", "Bring the outbox's tables up to date, or take them down",
		newMigrateUp(p), newMigrateDown(p), newMigrateStatus(p))
}

// migrateVerb is a subcommand that works on a database.
func migrateVerb(p process, use, short, example string, run func(ctx context.Context, s *store.Store) error) *cobra.Command {
	f := &mysqlFlags{}
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Args: noArgs,
		Annotations: map[string]string{stopNote: string(stopOrderly)}, // a step is finished
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := f.open("migrate")
			if err != nil {
				return err
			}
			defer context.AfterFunc(cmd.Context(), func() {
				fmt.Fprintln(p.Err, "stopping: the step in hand is finished, unless it waits for a lock in vain; a second signal ends the process at once")
			})()
			return errors.Join(run(cmd.Context(), store), store.Close())
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// noticesTo says on stderr what a step waits for.
func noticesTo(p process) migrations.Option {
	return migrations.Notify(func(notice string) { fmt.Fprintln(p.Err, notice) })
}

func newMigrateUp(p process) *cobra.Command {
	cmd := migrateVerb(p, "up", "Apply what is missing; processes that start together take turns, and a signal lets the step in hand end",
		"  unstale migrate up --mysql-dsn 'user:password@tcp(127.0.0.1:3306)/shop'",
		func(ctx context.Context, s *store.Store) error {
			done, err := migrations.Up(ctx, s.SchemaDB(), noticesTo(p))
			for _, r := range done {
				fmt.Fprintf(p.Out, "applied %s in %s\n", r.Source.Path, r.Duration.Round(time.Millisecond))
			}
			if err == nil && len(done) == 0 {
				fmt.Fprintln(p.Out, "nothing to apply: the schema is up to date")
			}
			return err
		})
	showEnv(cmd.Flags())
	return cmd
}

func newMigrateDown(p process) *cobra.Command {
	var force bool
	cmd := migrateVerb(p, "down", "Take back the last migration; refused while its table has rows",
		"  unstale migrate down          # one step\n  unstale migrate down --force  # even if rows are lost",
		func(ctx context.Context, s *store.Store) error {
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
	cmd.Flags().BoolVar(&force, "force", false, "drop the table even if it has rows, which are lost")
	showEnv(cmd.Flags(), "force")
	return cmd
}

func newMigrateStatus(p process) *cobra.Command {
	var asJSON bool
	cmd := migrateVerb(p, "status", "List the migrations and which are applied", "  unstale migrate status --json",
		func(ctx context.Context, s *store.Store) error {
			list, err := migrations.Status(ctx, s.SchemaDB())
			if err != nil {
				return err
			}
			if err := printMigrations(p, list, asJSON); err != nil {
				return err
			}
			return migrations.RefuseNewer(ctx, s.DB())
		})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	showEnv(cmd.Flags(), "json")
	return cmd
}

func printMigrations(p process, list []*goose.MigrationStatus, asJSON bool) error {
	type migration struct {
		Version   int64      `json:"version"`
		File      string     `json:"file"`
		Applied   bool       `json:"applied"`
		AppliedAt *time.Time `json:"applied_at"`
	}
	out := struct {
		Migrations []migration `json:"migrations"`
	}{Migrations: []migration{}}
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
