package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

func newDead(p process) *cobra.Command {
	return group("dead", "List, show, retry or discard dead letters",
		newDeadList(p), newDeadShow(p),
		newDeadBulk(p, deadVerb{
			name: "retry", done: "retried",
			short: "Retry dead letters",
			long: `Retry dead letters with the same parameters, trace and time. They are due immediately and get new
IDs; "unstale history" shows the first one. Fix the cause first: a row that is refused again is
dead-lettered again.

--set-entity and --set-params correct one letter. The map must be that of the workers and must accept
the row; --dry-run shows what the row invalidates before and after.`,
			example: `  unstale dead retry --reason unknown_entity --dry-run
  unstale dead retry --reason unknown_entity --map-version 5b3449e0a0a8
  unstale dead retry 17 18
  unstale dead retry 17 --set-params '{"category_id": [7, 9]}' --map mapping.yaml --dry-run`,
			run: (*store.Orders).RetryDead, corrects: true,
		}),
		newDeadBulk(p, deadVerb{
			name: "discard", done: "discarded",
			short: "Delete dead letters for good",
			long: `Delete dead letters for good. The keys of a dead row may still be stale: "unstale map explain" lists
them. Letters that died in the last 5 minutes stay, because write tokens may still name their rows.`,
			example: `  unstale dead discard --older-than 720h --dry-run
  unstale dead discard --older-than 720h
  unstale dead discard 17`,
			run: (*store.Orders).DiscardDead,
		}),
	)
}

// deadFlags choose dead letters.
type deadFlags struct {
	mysqlFlags
	query store.DeadQuery
	json  bool
}

// filterFlags are the flags of a filter, which belong to one call.
var filterFlags = []string{"entity", "reason", "map-version", "older-than", "newer-than"}

func (f *deadFlags) add(flags *pflag.FlagSet) {
	f.mysqlFlags.add(flags)
	flags.StringVar(&f.query.Entity, "entity", "", "only rows of this entity")
	flags.StringVar(&f.query.Reason, "reason", "", "only rows that died for this reason")
	flags.StringVar(&f.query.MapVersion, "map-version", "", "only rows that this version of the map refused")
	flags.DurationVar(&f.query.OlderThan, "older-than", 0, "only rows that died longer ago, such as 24h")
	flags.DurationVar(&f.query.NewerThan, "newer-than", 0, "only rows that died since, such as 1h")
	flags.BoolVar(&f.json, "json", false, "print one JSON object")
}

// check refuses what would choose nothing, or something else than was meant.
func (f *deadFlags) check(flags *pflag.FlagSet) error {
	if err := cmp.Or(refuseEmpty(flags, filterFlags...), checkReason(f.query.Reason, invalidation.Reasons())); err != nil {
		return err
	}
	if f.query.OlderThan < 0 || f.query.NewerThan < 0 {
		return usageError{errors.New("--older-than and --newer-than want a time that has passed, such as 24h")}
	}
	return nil
}

// checkReason refuses a --reason that no row has.
func checkReason[T ~string](reason string, reasons []T) error {
	if reason != "" && !slices.Contains(reasons, T(reason)) {
		return usageError{fmt.Errorf("--reason %q: there is no such reason; the reasons are %v", reason, reasons)}
	}
	return nil
}

// filtered reports whether any field of the filter is set.
func (f *deadFlags) filtered(flags *pflag.FlagSet) bool {
	return slices.ContainsFunc(filterFlags, func(name string) bool { return flags.Changed(name) })
}

// with runs do on new sessions.
func (f *deadFlags) with(ctx context.Context, do func(*session.Sessions) error) error {
	db, err := f.open("dead")
	if err != nil {
		return err
	}
	return errors.Join(orSchema(ctx, db, do(db)), db.Close())
}

func newDeadList(p process) *cobra.Command {
	f := deadFlags{}
	limit := 0
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, newest first",
		Example: `  unstale dead list
  unstale dead list --reason unknown_entity --newer-than 1h --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			return f.with(cmd.Context(), func(s *session.Sessions) error { return f.list(cmd.Context(), p, s, limit) })
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 20, "at most this many")
	showEnv(cmd.Flags(), append([]string{"json", "limit"}, filterFlags...)...)
	return cmd
}

func (f *deadFlags) list(ctx context.Context, p process, s *session.Sessions, limit int) error {
	orders := store.NewOrders(s)
	letters, err := orders.DeadLetters(ctx, f.query, limit)
	if err != nil {
		return err
	}
	total, _, err := orders.CountDead(ctx, f.query)
	if err != nil {
		return err
	}
	if f.json {
		list := make([]letter, len(letters))
		for i := range letters {
			list[i] = letterObject(&letters[i])
		}
		return output.JSON(p.Out, struct {
			Total int      `json:"total"`
			Dead  []letter `json:"dead"`
		}{total, list})
	}
	for i := range letters {
		l := &letters[i]
		fmt.Fprintf(p.Out, "%-8d %s  %-17s %s %s: %s\n", l.ID, l.DiedAt.Format(time.RFC3339), l.Reason,
			printable(l.Entity), printable(l.EntityID), printable(l.Error))
	}
	if more := total - len(letters); more > 0 {
		fmt.Fprintf(p.Out, "and %d more; see --limit\n", more)
	}
	if total == 0 {
		fmt.Fprintln(p.Out, "no dead letters")
	}
	return nil
}

// A letter is a dead letter as an object; texts are exact.
type letter struct {
	ID       uint64 `json:"id"`
	Entity   string `json:"entity"`
	EntityID string `json:"entity_id"`
	// the text as written, which may not be well-formed
	Params     *string   `json:"params"`
	Trace      string    `json:"trace"`
	Reason     string    `json:"reason"`
	Error      string    `json:"error"`
	MapVersion string    `json:"map_version"`
	CreatedAt  time.Time `json:"created_at"`
	DiedAt     time.Time `json:"died_at"`
	FirstID    uint64    `json:"first_id"`
	Attempts   int       `json:"attempts"`
	Repeated   bool      `json:"repeated"`
}

func letterObject(l *store.DeadLetter) letter {
	return letter{l.ID, l.Entity, l.EntityID, l.Params, l.Trace, l.Reason, l.Error, l.MapVersion, l.CreatedAt, l.DiedAt,
		l.FirstID, l.Attempts, l.Repeated}
}

func newDeadShow(p process) *cobra.Command {
	f := deadFlags{}
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a dead letter with all details",
		Example: "  unstale dead show 17",
		Args:    exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			f.query.IDs = ids
			return f.with(cmd.Context(), func(s *session.Sessions) error { return f.show(cmd.Context(), p, s) })
		},
	}
	f.mysqlFlags.add(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	showEnv(cmd.Flags(), "json")
	return cmd
}

func (f *deadFlags) show(ctx context.Context, p process, s *session.Sessions) error {
	letters, err := store.NewOrders(s).DeadLetters(ctx, f.query, 1)
	if err != nil {
		return err
	}
	if len(letters) == 0 {
		return fmt.Errorf("there is no dead letter %d", f.query.IDs[0])
	}
	l := letterObject(&letters[0])
	if f.json {
		return output.JSON(p.Out, l)
	}
	params := "none"
	if l.Params != nil {
		params = printable(*l.Params)
	}
	for _, line := range [][2]string{
		{"id", fmt.Sprint(l.ID)}, {"entity", printable(l.Entity)}, {"entity id", printable(l.EntityID)}, {"params", params},
		{"trace", printable(l.Trace)}, {"reason", l.Reason}, {"error", printable(l.Error)}, {"map", l.MapVersion},
		{"created at", l.CreatedAt.Format(time.RFC3339Nano)}, {"died at", l.DiedAt.Format(time.RFC3339Nano)},
		{"first id", fmt.Sprint(l.FirstID)}, {"attempts", fmt.Sprint(l.Attempts)}, {"repeat", fmt.Sprint(l.Repeated)},
	} {
		fmt.Fprintln(p.Out, strings.TrimRight(fmt.Sprintf("%-12s %s", line[0], line[1]), " "))
	}
	return nil
}

// parseIDs reads the ids of rows.
func parseIDs(args []string) ([]uint64, error) {
	ids := make([]uint64, len(args))
	for i, arg := range args {
		id, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || id == 0 {
			return nil, usageError{fmt.Errorf("%q is not an id; \"unstale dead list\" shows them", arg)}
		}
		ids[i] = id
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
