package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
)

func newCapture(p process) *cobra.Command {
	cmd := group("capture", "Manage triggers that insert outbox rows",
		newCaptureSQL(p), newCaptureApply(p), newCaptureDiff(p), newCaptureDrop(p), newCaptureStatus(p))
	cmd.Long = `Manage triggers that insert outbox rows (change data capture). The section capture of the map
names tables, and the rows that their changes become. A trigger runs in the transaction of every
write: of an application, an import, or a console.`
	cmd.Example = `  unstale capture diff
  unstale capture apply --definer unstale_capture@localhost`
	return cmd
}

// captureFlags are the flags of the commands that compare the map with the database.
type captureFlags struct {
	mysql   mysqlFlags
	mapFile string
	definer string
	json    bool
}

func (f *captureFlags) addCaptureFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.mysql.addMySQLFlags(flags)
	flags.StringVar(&f.mapFile, "map", defaultMap, "the map's file")
	flags.StringVar(&f.definer, "definer", "", "account that triggers run as (DEFINER), as user@host (default: the one of --mysql-dsn)")
	flags.BoolVar(&f.json, "json", false, "print one JSON object")
}

// with reads the map and calls fn with a Capturer of its triggers, and with the database.
func (f *captureFlags) with(p process, fn func(*capture.Capturer, *session.Sessions) error) (err error) {
	c := &capture.Capturer{Notify: func(notice string) { fmt.Fprintln(p.Err, notice) }}
	if f.definer != "" {
		if c.Definer, err = capture.ParseAccount(f.definer); err != nil {
			return usageError{fmt.Errorf("--definer: %w", err)}
		}
	}
	m, err := loadMap(p, f.mapFile)
	if err != nil {
		return err
	}
	if c.Captures = m.Captures(); len(c.Captures) == 0 {
		return fmt.Errorf("%s has no section capture; add one such as\n  capture:\n    products: {entity: product, id: id}", f.mapFile)
	}
	return f.mysql.inSessions("capture", func(db *session.Sessions) error {
		c.DB = db.SchemaDB()
		return fn(c, db)
	})
}

// A trigger is the JSON form of a trigger, with the action that was or would be taken.
type trigger struct {
	Table   string `json:"table"`
	Event   string `json:"event"`
	State   string `json:"state"`
	Name    string `json:"name,omitempty"`   // that the database has
	Create  string `json:"create,omitempty"` // to be made
	Definer string `json:"definer,omitempty"`
}

func triggerOf(c capture.Change) trigger {
	t := trigger{Table: c.Table(), Event: c.Event(), State: string(c.State), Create: c.Create}
	if c.Have != nil {
		t.Name, t.Definer = c.Have.Name, c.Have.Definer
	}
	return t
}

type triggers struct {
	Triggers  []trigger         `json:"triggers"`
	Uncovered []store.Uncovered `json:"uncovered,omitempty"` // of apply
	// of diff
	SchemaChanges []capture.SchemaChange `json:"schema_changes,omitempty"`
}

func (t triggers) print(p process, asJSON bool) error {
	if asJSON {
		return output.JSON(p.Out, t)
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	for _, one := range t.Triggers {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", one.State, printable(one.Table), one.Event, printable(strings.Join(slices.DeleteFunc([]string{one.Name, one.Create}, isEmpty), " -> ")))
	}
	err := w.Flush()
	for _, s := range t.SchemaChanges {
		fmt.Fprintf(p.Out, "\n%s: %s\n", printable(s.Table), printable(s.Found))
		if len(s.Next) > 0 {
			fmt.Fprintln(p.Out, "next:")
		}
		for _, step := range s.Next {
			fmt.Fprintf(p.Out, "  %s\n", printable(step))
		}
	}
	return err
}

func isEmpty(s string) bool { return s == "" }

func newCaptureSQL(p process) *cobra.Command {
	f := &captureFlags{}
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Print the map's triggers as SQL",
		Long: `Print the map's triggers as SQL, to review, or to run with the mysql client if "unstale capture
apply" lacks the privileges. The command reads the columns of the tables and changes nothing.`,
		Example: "  unstale capture sql > triggers.sql\n  unstale capture sql --definer unstale_capture@localhost --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(p, func(c *capture.Capturer, _ *session.Sessions) error {
				list, err := c.Statements(cmd.Context())
				if err != nil {
					return err
				}
				if f.json {
					return output.JSON(p.Out, struct {
						SQLMode    string   `json:"sql_mode"`
						Statements []string `json:"statements"`
					}{capture.SQLMode, list})
				}
				_, err = fmt.Fprint(p.Out, capture.Script(list))
				return err
			})
		},
	}
	f.addCaptureFlags(cmd)
	return cmd
}

func newCaptureApply(p process) *cobra.Command {
	f, dry := &captureFlags{}, false
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Create missing triggers and drop outdated ones",
		Long: `Create missing triggers and drop outdated ones while the application runs. Each new trigger exists
before the old one is dropped. A statement that waits for a table gives up after a second, lets
other statements through, and is retried. A second call changes nothing.

The command first checks that the definer has the privileges of the triggers, because otherwise
every write to their tables would fail.`,
		Example:     "  unstale capture apply --dry-run\n  unstale capture apply --definer unstale_capture@localhost",
		Annotations: map[string]string{stopNote: string(stopOrderly)},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(p, func(c *capture.Capturer, db *session.Sessions) error {
				if dry {
					return planned(cmd.Context(), p, c, f.json)
				}
				return applied(cmd.Context(), p, c, store.NewCaptureLog(db), f.mapFile, f.json)
			})
		},
	}
	f.addCaptureFlags(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the changes without making them")
	return cmd
}

// planned prints what is to be done.
func planned(ctx context.Context, p process, c *capture.Capturer, asJSON bool) error {
	changes, err := c.Rehearse(ctx)
	out := triggers{Triggers: []trigger{}}
	for _, change := range changes {
		if change.Differs() {
			out.Triggers = append(out.Triggers, triggerOf(change))
		}
	}
	if len(out.Triggers) == 0 && err == nil && !asJSON {
		fmt.Fprintln(p.Out, upToDate)
	}
	return errors.Join(err, out.print(p, asJSON))
}

const upToDate = "nothing to do: the triggers match the map"

// applied does it, and prints each statement's effect when it has been run. At the end it prints
// which tables were not covered, and since when.
func applied(ctx context.Context, p process, c *capture.Capturer, log *store.CaptureLog, mapFile string, asJSON bool) error {
	existing, err := capture.ReadExisting(ctx, c.DB)
	if err != nil {
		return err
	}
	out := triggers{Triggers: []trigger{}}
	var covered []string // tables that had no trigger
	err = c.Apply(ctx, func(change capture.Change) {
		out.Triggers = append(out.Triggers, triggerOf(change))
		table := change.Table()
		if change.Create != "" && change.State != capture.Moved && !slices.Contains(covered, table) && !slices.ContainsFunc(existing, func(e capture.Existing) bool { return e.Table == table }) {
			covered = append(covered, table)
		}
		switch {
		case asJSON:
		case change.Create != "":
			fmt.Fprintf(p.Out, "created %s, %s on %s\n", change.Create, change.Event(), printable(table))
		default:
			fmt.Fprintf(p.Out, "dropped %s of %s: %s\n", change.Have.Name, printable(table), change.State)
		}
	})
	if len(covered) > 0 { // even after an error: some have their triggers again
		last := context.WithoutCancel(ctx)
		var unknown error
		out.Uncovered, unknown = log.Uncovered(last, covered)
		warnUnnoted(p, errors.Join(unknown, log.Note(last, store.ActionCaptureApply, covered)))
	}
	if asJSON {
		return errors.Join(err, out.print(p, true))
	}
	for _, u := range out.Uncovered {
		fmt.Fprintln(p.Out, uncoveredText(c, mapFile, u))
	}
	if err == nil && len(out.Triggers) == 0 {
		fmt.Fprintln(p.Out, upToDate)
	}
	return err
}

// uncoveredText returns since when a table was not covered, and what to run.
func uncoveredText(c *capture.Capturer, mapFile string, u store.Uncovered) string {
	lost, why := "has lost its triggers", ", with a copy that took its place or by hand"
	if u.Drop {
		lost, why = "was not covered", " ('unstale capture drop')"
	}
	cure := "its changes reach captured tables by foreign keys, so invalidate the keys of these: unstale invalidate --pattern"
	if slices.ContainsFunc(c.Captures, func(one invalidation.Capture) bool { return one.Table == u.Table }) {
		cure = "for writes of that time, run: unstale replay --table " + output.Shell(u.Table) + withMap(mapFile)
	}
	return fmt.Sprintf("%s %s since %s%s; %s", printable(u.Table), lost, u.Since.UTC().Format(time.RFC3339), why, cure)
}

// warnUnnoted reports an error of the audit, which fails no command of capture: its account needs no
// privilege there.
func warnUnnoted(p process, err error) {
	if err != nil {
		fmt.Fprintf(p.Err, "unstale: without the audit, 'capture apply' cannot say since when a table was not covered; GRANT SELECT and INSERT on cache_outbox_audit: %v\n", err)
	}
}

func newCaptureDiff(p process) *cobra.Command {
	f, metrics := &captureFlags{}, false
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Compare the database's triggers with the map",
		Long: `Compare the database's triggers with the map. Run it in CI to find a table that was rebuilt, renamed
or changed without its triggers.

Exit codes:
  0  the triggers match the map
  1  they differ; or the account lacks the privilege TRIGGER on a table and sees none of it; or the
     definer has lost a privilege, so every write fails, or lacks one for a copy of a table

A table in the middle of a schema change is named with the next step.

--metrics prints the number of differences for Prometheus, and exits with 0 if the comparison was
possible: let cron write it to a file of node_exporter's textfile collector.`,
		Example: "  unstale capture diff\n  unstale capture diff --json\n  unstale capture diff --metrics > capture.prom.new && mv capture.prom.new capture.prom",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if metrics && f.json {
				return usageError{errors.New("--json and --metrics; give one of them")}
			}
			return f.with(p, func(c *capture.Capturer, _ *session.Sessions) error {
				changes, fault := c.Examine(cmd.Context())
				if changes == nil && fault != nil {
					return fault
				}
				if metrics {
					return capture.WriteMetrics(p.Out, capture.Differences(changes, fault), time.Now())
				}
				out := triggers{Triggers: []trigger{}}
				for _, change := range changes {
					out.Triggers = append(out.Triggers, triggerOf(change))
				}
				var unread error
				if out.SchemaChanges, unread = c.SchemaChanges(cmd.Context(), changes); unread != nil {
					return errors.Join(unread, fault)
				}
				if different := capture.Differences(changes, nil); different > 0 {
					fault = errors.Join(fault, fmt.Errorf("%s of %s; 'unstale capture apply' fixes that", output.Things(different, "difference"), output.Things(len(changes), "trigger")))
				}
				return errors.Join(out.print(p, f.json), fault)
			})
		},
	}
	f.addCaptureFlags(cmd)
	cmd.Flags().BoolVar(&metrics, "metrics", false, "print the number of differences in Prometheus' text format")
	return cmd
}

func newCaptureDrop(p process) *cobra.Command {
	var (
		f       mysqlFlags
		tables  []string
		mapFile string
		dry     bool
	)
	cmd := &cobra.Command{
		Use:   "drop",
		Short: "Drop all triggers, or those of some tables",
		Long: `Drop the triggers of "unstale capture apply": all, those of some tables, or those of the tables that
a map captures. Later writes without an outbox row leave stale keys behind. Drop them before
"unstale migrate down": a trigger without an outbox would fail every write.`,
		Example:     "  unstale capture drop --dry-run\n  unstale capture drop --table products\n  unstale capture drop --map mapping.yaml",
		Annotations: map[string]string{stopNote: string(stopOrderly)},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd.Flags(), "table", "map"); err != nil {
				return err
			}
			chosen := tables
			if mapFile != "" {
				if len(tables) > 0 {
					return usageError{errors.New("--table and --map; give one of them")}
				}
				var err error
				if chosen, err = capturedTables(p, mapFile); err != nil {
					return err
				}
			}
			return f.inSessions("capture", func(db *session.Sessions) error {
				return dropTriggers(cmd.Context(), p, db, chosen, tables, dry)
			})
		},
	}
	f.addMySQLFlags(cmd.Flags())
	cmd.Flags().StringArrayVar(&tables, "table", nil, "only of this table, which may be given several times (default: all)")
	cmd.Flags().StringVar(&mapFile, "map", "", "map whose captured tables are meant (default: all tables that have triggers)")
	withoutEnv(cmd.Flags(), "map")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the triggers to drop without dropping them")
	return cmd
}

// capturedTables returns the tables that a map captures.
func capturedTables(p process, file string) (tables []string, err error) {
	m, err := loadMap(p, file)
	if err != nil {
		return nil, err
	}
	for _, c := range m.Captures() {
		tables = append(tables, c.Table)
	}
	if len(tables) == 0 {
		return nil, fmt.Errorf("%s has no section capture, so it names no table; leave --map out to drop the triggers of all tables", file)
	}
	return tables, nil
}

// dropTriggers drops the triggers of some tables, or of all if there are none to choose. It returns
// an error for a named table that has no trigger.
func dropTriggers(ctx context.Context, p process, db *session.Sessions, tables, named []string, dry bool) error {
	chosen := func(e capture.Existing) bool { return len(tables) == 0 || slices.Contains(tables, e.Table) }
	existing, err := capture.ReadExisting(ctx, db.SchemaDB())
	if err != nil {
		return err
	}
	var had []string // tables, of those that are chosen
	for _, e := range existing {
		if chosen(e) && !slices.Contains(had, e.Table) {
			had = append(had, e.Table)
		}
	}
	did := func(verb string, e capture.Existing) {
		fmt.Fprintf(p.Out, "%s %s, %s %s on %s\n", verb, e.Name, e.Timing, e.Event, printable(e.Table))
	}
	switch {
	case len(had) == 0:
	case dry:
		for _, e := range existing {
			if chosen(e) {
				did("would drop", e)
			}
		}
	default:
		log, done := store.NewCaptureLog(db), []string{}
		warnUnnoted(p, log.Note(ctx, store.ActionCaptureDrop, had))
		c := &capture.Capturer{DB: db.SchemaDB(), Notify: func(notice string) { fmt.Fprintln(p.Err, notice) }}
		err := c.Drop(ctx, chosen, func(e capture.Existing) {
			did("dropped", e)
			if !slices.Contains(done, e.Table) {
				done = append(done, e.Table)
			}
		})
		if len(done) > 0 {
			fmt.Fprintf(p.Out, "from now on, writes of %s leave no row, and their keys stay stale; 'unstale capture apply' covers them again, and says what to run then\n",
				printable(strings.Join(done, ", ")))
		}
		if err != nil {
			if kept := slices.DeleteFunc(had, func(table string) bool { return slices.Contains(done, table) }); len(kept) > 0 {
				warnUnnoted(p, log.Note(context.WithoutCancel(ctx), store.ActionCaptureApply, kept))
			}
			return err
		}
	}
	for _, table := range named {
		if !slices.Contains(had, table) {
			return fmt.Errorf("%s has no such trigger, or the account lacks the privilege TRIGGER on it and sees none; 'unstale capture status' lists them", printable(table))
		}
	}
	if len(had) == 0 {
		fmt.Fprintln(p.Out, "nothing to drop: there is no such trigger, or the account lacks the privilege TRIGGER and sees none")
	}
	return nil
}

func newCaptureStatus(p process) *cobra.Command {
	var (
		f      mysqlFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "List the database's triggers, without a map",
		Example: "  unstale capture status --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.inSessions("capture", func(db *session.Sessions) error {
				list, err := capture.ReadExisting(cmd.Context(), db.SchemaDB())
				if err != nil {
					return err
				}
				return printExisting(p, list, asJSON)
			})
		},
	}
	f.addMySQLFlags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func printExisting(p process, list []capture.Existing, asJSON bool) error {
	type existing struct {
		Table   string    `json:"table"`
		Event   string    `json:"event"`
		Name    string    `json:"name"`
		Definer string    `json:"definer"`
		Created time.Time `json:"created_at"`
	}
	out := struct {
		Triggers []existing `json:"triggers"`
	}{Triggers: []existing{}}
	for _, e := range list {
		out.Triggers = append(out.Triggers, existing{e.Table, e.Timing + " " + e.Event, e.Name, e.Definer, e.Created})
	}
	if asJSON {
		return output.JSON(p.Out, out)
	}
	if len(list) == 0 {
		fmt.Fprintln(p.Out, "no trigger, or the account lacks the privilege TRIGGER and sees none")
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	for _, e := range out.Triggers {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", printable(e.Table), e.Event, e.Name, printable(e.Definer), e.Created.Format(time.DateTime))
	}
	return w.Flush()
}
