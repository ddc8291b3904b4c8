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
	"github.com/unstale/unstale/internal/history"
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
			run: (*store.Actions).RetryDead, corrects: true,
		}),
		newDeadBulk(p, deadVerb{
			name: "discard", done: "discarded",
			short: "Delete dead letters for good",
			long: `Delete dead letters for good. The keys of a dead row may still be stale: "unstale map explain" lists
them. Letters that died in the last 5 minutes stay, because write tokens may still name their rows.`,
			example: `  unstale dead discard --older-than 720h --dry-run
  unstale dead discard --older-than 720h
  unstale dead discard 17`,
			run: (*store.Actions).DiscardDead,
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

func (f *deadFlags) addDeadFlags(flags *pflag.FlagSet) {
	f.mysqlFlags.addMySQLFlags(flags)
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

func newDeadList(p process) *cobra.Command {
	f := deadFlags{}
	limit := 0
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, newest first",
		Example: `  unstale dead list
  unstale dead list --reason unknown_entity --newer-than 1h --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			l := &listing{mysqlFlags: f.mysqlFlags, limit: limit, json: f.json, exact: true}
			return show(cmd.Context(), p, l, "dead", func(ctx context.Context, s *session.Sessions) ([]store.DeadLetter, int, error) {
				letters, err := store.NewActions(s).DeadLetters(ctx, f.query, limit)
				if err != nil {
					return nil, 0, err
				}
				total, _, err := store.NewActions(s).CountDead(ctx, f.query)
				return letters, total, err
			}, deadObject, deadLine, "no dead letters")
		},
	}
	f.addDeadFlags(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 20, "at most this many")
	return cmd
}

func deadObject(letters []store.DeadLetter, total int) any {
	return struct {
		Total int                `json:"total"`
		Dead  []store.DeadLetter `json:"dead"`
	}{total, append([]store.DeadLetter{}, letters...)}
}

func deadLine(l *store.DeadLetter) string {
	return fmt.Sprintf("%-8d %s  %-17s %s %s: %s", l.ID, l.DiedAt.Format(time.RFC3339), l.Reason,
		printable(l.Entity), printable(l.EntityID), printable(l.Error))
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
			return f.onSessions(cmd.Context(), "dead", func(s *session.Sessions) error { return f.show(cmd.Context(), p, s) })
		},
	}
	f.mysqlFlags.addMySQLFlags(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	return cmd
}

func (f *deadFlags) show(ctx context.Context, p process, s *session.Sessions) error {
	letters, err := store.NewActions(s).DeadLetters(ctx, f.query, 1)
	if err != nil {
		return err
	}
	if len(letters) == 0 {
		return fmt.Errorf("there is no dead letter %d", f.query.IDs[0])
	}
	l := letters[0]
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

// A deadVerb does something with many dead letters.
type deadVerb struct {
	name, done           string
	short, long, example string
	run                  func(*store.Actions, context.Context, store.DeadQuery, func(total int)) ([]uint64, error)
	corrects             bool // it can also correct one letter
}

// deadBulk is "unstale dead retry" and "unstale dead discard".
type deadBulk struct {
	deadFlags
	verb     deadVerb
	correct  deadCorrection
	corrects bool // one letter, by doCorrect
	all      bool
	dryRun   bool
}

func newDeadBulk(p process, verb deadVerb) *cobra.Command {
	b := &deadBulk{verb: verb}
	cmd := &cobra.Command{
		Use: verb.name + " [ID...]", Short: verb.short, Long: verb.long, Example: verb.example, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.choose(cmd, args); err != nil {
				return err
			}
			do := b.do
			if b.corrects {
				do = b.doCorrect
			}
			return b.onSessions(cmd.Context(), "dead", func(s *session.Sessions) error { return do(cmd.Context(), p, s) })
		},
	}
	flags := cmd.Flags()
	b.addDeadFlags(flags)
	flags.BoolVar(&b.all, "all", false, "all dead letters")
	flags.BoolVar(&b.dryRun, "dry-run", false, "count, do nothing")
	if verb.corrects {
		b.correct.addCorrectionFlags(cmd, &b.deadFlags)
	}
	return cmd
}

// choose refuses a call that does not select letters.
func (b *deadBulk) choose(cmd *cobra.Command, args []string) error {
	if err := b.check(cmd.Flags()); err != nil {
		return err
	}
	ids, err := parseIDs(args)
	if err != nil {
		return err
	}
	b.query.IDs = ids
	if b.verb.corrects {
		if b.corrects, err = b.correct.wanted(cmd.Flags()); err != nil {
			return err
		}
	}
	switch filtered := slices.ContainsFunc(filterFlags, cmd.Flags().Changed); {
	case b.corrects && (len(ids) != 1 || b.all || filtered):
		return usageError{errors.New("--set-entity and --set-params correct one dead letter; give its id alone")}
	case b.all && (len(ids) > 0 || filtered):
		return usageError{errors.New("--all and a choice; give one of them")}
	case !b.all && len(ids) == 0 && !filtered:
		return usageError{errors.New("which ones? give ids, a filter such as --reason unknown_entity, or --all")}
	}
	return nil
}

func (b *deadBulk) do(ctx context.Context, p process, s *session.Sessions) error {
	if b.dryRun {
		return b.printCount(ctx, p, s)
	}
	done, err := b.verb.run(store.NewActions(s), ctx, b.query, progress(p, func(total int) string { return fmt.Sprint(b.verb.done, " ", total) }))
	b.printDone(p, len(done)) // what was done is told in any case
	if err != nil {
		return err
	}
	return b.requireAll(done)
}

// printCount prints how many letters there are.
func (b *deadBulk) printCount(ctx context.Context, p process, s *session.Sessions) error {
	n, _, err := store.NewActions(s).CountDead(ctx, b.query)
	if err != nil {
		return err
	}
	if b.printDone(p, n); n == len(b.query.IDs) {
		return nil
	}
	letters, err := store.NewActions(s).DeadLetters(ctx, store.DeadQuery{IDs: b.query.IDs}, len(b.query.IDs))
	if err != nil || len(b.query.IDs) == 0 {
		return err
	}
	var there []uint64
	for i := range letters {
		there = append(there, letters[i].ID)
	}
	return b.requireAll(there)
}

// printDone prints how many letters it was done to. A write error is reported at the end, and does
// not fail the action.
func (b *deadBulk) printDone(p process, n int) {
	if b.json {
		_ = output.JSON(p.Out, map[string]any{"dry_run": b.dryRun, b.verb.done: n})
		return
	}
	would := ""
	if b.dryRun {
		would = "would have "
	}
	fmt.Fprintf(p.Out, "%s%s %s\n", would, b.verb.done, output.Things(n, "dead letter"))
}

// requireAll returns an error about requested IDs that do not exist, or that the filter leaves out.
func (b *deadBulk) requireAll(done []uint64) error {
	missing := slices.DeleteFunc(slices.Clone(b.query.IDs), func(id uint64) bool { return slices.Contains(done, id) })
	if len(missing) > 0 {
		return fmt.Errorf("there is no such dead letter: %d", missing)
	}
	return nil
}

// deadCorrection is "unstale dead retry ID --set-entity ... --set-params ...".
type deadCorrection struct {
	entity, params string
	setParams      bool
	mapFile        string
}

// correctFlags are the flags of a correction, which belong to one call.
var correctFlags = []string{"set-entity", "set-params"}

func (c *deadCorrection) addCorrectionFlags(cmd *cobra.Command, f *deadFlags) {
	flags := cmd.Flags()
	flags.StringVar(&c.entity, "set-entity", "", "of one dead letter: put it back with this entity, if the map takes it")
	flags.StringVar(&c.params, "set-params", "", "of one dead letter: put it back with these parameters, a JSON object, kept byte for byte")
	flags.StringVar(&c.mapFile, "map", defaultMap, "file of the workers' map, for --set-entity and --set-params")
	f.addLookups(flags)
}

// wanted reports whether the call corrects.
func (c *deadCorrection) wanted(flags *pflag.FlagSet) (bool, error) {
	c.setParams = flags.Changed("set-params")
	return slices.ContainsFunc(correctFlags, flags.Changed), refuseEmpty(flags, correctFlags...)
}

// A judgement is the result of the map for a row: what it invalidates, or why it is refused.
type judgement struct {
	Entity  string       `json:"entity"`
	ID      string       `json:"id"`
	Params  *string      `json:"params"` // exact
	Expands *explanation `json:"expands,omitempty"`
	Refused string       `json:"refused,omitempty"`
}

func (b *deadBulk) doCorrect(ctx context.Context, p process, s *session.Sessions) error {
	m, err := loadMap(p, b.correct.mapFile)
	if err != nil {
		return mapError(err)
	}
	if err := b.correct.checkMap(ctx, p, s, m); err != nil {
		return err
	}
	acts := store.NewActions(s)
	letters, err := acts.DeadLetters(ctx, b.query, 1)
	if err != nil {
		return err
	}
	if len(letters) == 0 {
		return b.requireAll(nil)
	}
	c := store.Correction{Letter: letters[0], Entity: cmp.Or(b.correct.entity, letters[0].Entity), Params: letters[0].Params}
	if b.correct.setParams {
		c.Params = &b.correct.params
	}
	before, _ := judgeRow(ctx, s, m, c.Letter.Entity, c.Letter.EntityID, c.Letter.Params)
	after, refused := judgeRow(ctx, s, m, c.Entity, c.Letter.EntityID, c.Params)
	if refused == nil && !b.dryRun {
		if err := acts.RetryCorrected(ctx, c); err != nil {
			return err
		}
	}
	b.reportCorrection(p, before, after, refused == nil)
	if refused != nil {
		return fmt.Errorf("nothing was done: map %s refuses the row as corrected: %w; correct --set-entity or --set-params, or the map; "+
			"`unstale map explain` tries a row", m.Version(), refused)
	}
	return nil
}

// checkMap refuses a map that no worker uses, since its result would mean nothing.
func (c *deadCorrection) checkMap(ctx context.Context, p process, s *session.Sessions, m *invalidation.Map) error {
	workers, err := store.NewWorkers(s).Workers(ctx)
	var versions []string
	for i := range workers {
		if v := workers[i].MapVersion; workers[i].Lives() && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	switch {
	case err != nil:
		fmt.Fprintf(p.Err, "whether the workers use this map is unknown: %v\n", err)
	case len(versions) == 0:
		fmt.Fprintln(p.Err, "whether the workers use this map is unknown: none runs")
	case !slices.Contains(versions, m.Version()):
		return fmt.Errorf("nothing was done: %s is version %s of the map, and the workers use %v; give the file that they read with --map, or wait until they have loaded this one",
			c.mapFile, m.Version(), versions)
	}
	return nil
}

// judgeRow asks the map.
func judgeRow(ctx context.Context, s *session.Sessions, m *invalidation.Map, entity, id string, params *string) (judgement, error) {
	j := judgement{Entity: entity, ID: id, Params: params}
	plan, row, err := history.ExpandTexts(ctx, s, m, entity, id, params)
	if err != nil {
		j.Refused = err.Error()
		return j, err
	}
	j.Expands = explain(m, row, plan)
	return j, nil
}

func (b *deadBulk) reportCorrection(p process, before, after judgement, fits bool) {
	done := 0
	if fits {
		done = 1
	}
	if b.json {
		// as report
		_ = output.JSON(p.Out, map[string]any{"dry_run": b.dryRun, b.verb.done: done, "before": before, "after": after})
		return
	}
	for _, side := range []struct {
		name string
		judgement
	}{{"before", before}, {"after", after}} {
		params := ""
		if side.Params != nil {
			params = printable(*side.Params)
		}
		fmt.Fprintf(p.Out, "%-8s %s %s %s\n", side.name, printable(side.Entity), printable(side.ID), params)
		if side.Expands == nil {
			fmt.Fprintf(p.Out, "%-8s %s\n", "refused", printable(side.Refused))
			continue
		}
		side.Expands.print(p)
	}
	if fits {
		b.printDone(p, done)
	}
}
