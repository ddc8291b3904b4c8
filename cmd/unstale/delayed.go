package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

func newDelayedList(p process) *cobra.Command {
	var (
		l     listing
		query store.DelayedQuery
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List delayed rows, by due time",
		Long: `List delayed rows: rows that the application has scheduled, repeats of the map, and failed rows
that will be retried, each with the reason and the error.`,
		Example: `  unstale delayed list
  unstale delayed list --due
  unstale delayed list --reason redis_refused --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(refuseEmpty(cmd.Flags(), "entity", "reason"), checkReason(query.Reason, store.DelayedReasons())); err != nil {
				return err
			}
			return show(cmd.Context(), p, &l, "delayed", func(ctx context.Context, s *session.Sessions) ([]store.DelayedRow, int, error) {
				return store.NewActions(s).DelayedRows(ctx, query, l.limit)
			}, delayedObject, delayedLine, "no delayed rows")
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&query.Entity, "entity", "", "only rows of this entity")
	flags.StringVar(&query.Reason, "reason", "", "only rows whose last failure had this reason")
	flags.BoolVar(&query.Due, "due", false, "only rows whose time has come")
	l.addListFlags(flags)
	return cmd
}

func newDelayedRetry(p process) *cobra.Command {
	var (
		f                       mysqlFlags
		query                   store.DelayedQuery
		scheduled, dryRun, json bool
	)
	cmd := &cobra.Command{
		Use:   "retry",
		Short: "Retry failed rows now",
		Long: `Retry failed rows now instead of at their due time. Rows that the application has scheduled, and
repeats of the map, keep their time unless --scheduled is given.`,
		Example: `  unstale delayed retry --dry-run
  unstale delayed retry --reason redis_refused
  unstale delayed retry --scheduled --entity product`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(refuseEmpty(cmd.Flags(), "entity", "reason"), checkReason(query.Reason, store.DelayedReasons())); err != nil {
				return err
			}
			return f.onSessions(cmd.Context(), "delayed", func(s *session.Sessions) (err error) {
				n, done := 0, "retried"
				if dryRun {
					done = "would retry"
					n, err = store.CountUndue(cmd.Context(), s, query, scheduled)
				} else {
					n, err = store.NewActions(s).RetryDelayed(cmd.Context(), query, scheduled, progress(p, func(total int) string { return fmt.Sprint("retried ", total) }))
				}
				switch {
				case err != nil && n == 0: // what was done is reported in any case
				case json:
					_ = output.JSON(p.Out, map[string]any{"dry_run": dryRun, "retried": n})
				default:
					fmt.Fprintf(p.Out, "%s %s\n", done, output.Things(n, "delayed row"))
				}
				return err
			})
		},
	}
	flags := cmd.Flags()
	f.addMySQLFlags(flags)
	flags.StringVar(&query.Entity, "entity", "", "only rows of this entity")
	flags.StringVar(&query.Reason, "reason", "", "only rows whose last failure had this reason")
	flags.BoolVar(&scheduled, "scheduled", false, "scheduled rows and repeats too")
	flags.BoolVar(&dryRun, "dry-run", false, "count, do nothing")
	flags.BoolVar(&json, "json", false, "print one JSON object")
	return cmd
}

func delayedObject(rows []store.DelayedRow, total int) any {
	return struct {
		Total   any                `json:"total"`
		Delayed []store.DelayedRow `json:"delayed"`
	}{bounded(total), append([]store.DelayedRow{}, rows...)}
}

func delayedLine(r *store.DelayedRow) string {
	when := "in " + r.DueIn().Round(time.Second).String()
	if r.DueIn() <= 0 {
		when = "due for " + (-r.DueIn()).Round(time.Millisecond).String()
	}
	why := "scheduled"
	switch {
	case r.Reason != "":
		why = r.Reason + ", " + output.Things(r.Attempts, "attempt")
	case r.Repeated:
		why = "repeat"
	}
	line := fmt.Sprintf("%-8d %s  %s  %s  %s %s", r.ID, r.DueAt.Format(time.RFC3339), when, why, printable(r.Entity), printable(r.EntityID))
	if r.Error != "" {
		line += ": " + printable(r.Error)
	}
	return line
}
