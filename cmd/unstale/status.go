package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
)

// exitStale and exitUnknown are exit codes of "unstale status" alone.
const (
	exitStale   = 3
	exitUnknown = 4
)

// statusCommand is "unstale status".
type statusCommand struct {
	mysql  mysqlFlags
	redis  redisFlags
	json   bool
	watch  time.Duration // 0: once
	looker *status.Looker
}

func newStatus(p process) *cobra.Command {
	c := &statusCommand{}
	cmd := &cobra.Command{
		Use:   "status [--watch [INTERVAL]]",
		Short: "Show whether cached data is stale, and why",
		Long: `Show whether cached data is stale, and why. The first line has the overall status, since when, the
cause, and what to do. Further lines list waiting, delayed and dead rows, and recent work.

Exit codes:
  0  nothing is stale
  1  the tables cannot be read
  3  data is stale, or may be
  4  unknown, for example because no worker runs

--watch repeats until Ctrl-C. On a terminal it draws a page, elsewhere it writes the first line;
with --json it writes one object per line.

Three lines have the invalidations of the last hour, 24 hours and 30 days: the share whose keys were
unlinked in time after the commit, and how many entries were found to be stale. The time ends at the
UNLINK, not in the in-process caches of readers. Rows that are dead or still wait count as late.

Workers publish their status in MySQL and in Redis. With --redis-url the command reads both, and so
knows the workers while MySQL refuses writes.`,
		Example: `  unstale status
  unstale status --json
  unstale status --watch      # every second
  unstale status --watch 5s`,
		Args: func(cmd *cobra.Command, args []string) error { return c.interval(cmd, args) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.mysql.inSessions("status", func(s *session.Sessions) error {
				look := func(k *keyspace.Keyspace) error { return c.printStatus(cmd.Context(), p, s, k) }
				if c.redis.url.text == "" {
					return look(nil)
				}
				keyspace.SetClientLog(nil)
				return c.redis.onKeyspace(look)
			})
		},
	}
	c.mysql.addMySQLFlags(cmd.Flags())
	c.redis.addRedisFlags(cmd.Flags())
	cmd.Flags().BoolVar(&c.json, "json", false, `print one JSON object; a count beyond 10000 is the text ">10000"`)
	cmd.Flags().DurationVar(&c.watch, "watch", 0, "refresh interval until Ctrl-C, 100ms to 1h (1s without a value)")
	cmd.Flags().Lookup("watch").NoOptDefVal = "1s"
	return cmd
}

// interval reads what stands behind --watch, which pflag leaves to the arguments.
func (c *statusCommand) interval(cmd *cobra.Command, args []string) (err error) {
	watches := cmd.Flags().Changed("watch")
	if len(args) > 1 || len(args) == 1 && !watches {
		return noArgs(cmd, args)
	}
	if len(args) == 1 {
		if c.watch, err = time.ParseDuration(args[0]); err != nil {
			return usageError{fmt.Errorf("--watch %q: must be an interval, for example 5s", args[0])}
		}
	}
	if watches && (c.watch < 100*time.Millisecond || c.watch > time.Hour) {
		return usageError{fmt.Errorf("--watch %s: must be 100ms to 1h", c.watch)}
	}
	return nil
}

// printStatus works without a Redis, then k is nil.
func (c *statusCommand) printStatus(ctx context.Context, p process, s *session.Sessions, k *keyspace.Keyspace) error {
	c.looker = status.New(s, k)
	if c.watch > 0 {
		if err := refuseOlder(ctx, s); err != nil {
			return err
		}
		return c.watching(ctx, p, s)
	}
	st, v, err := c.looker.LookTwice(ctx)
	if err == nil { // an unreachable server is asked once
		if err := refuseOlder(ctx, s); err != nil {
			return err
		}
	}
	switch err = orSchema(ctx, s, err); {
	case err != nil:
		return fmt.Errorf("whether anything is stale is unknown: %w", err)
	case c.json:
		err = output.JSON(p.Out, statusObject(st, v))
	default:
		printVerdict(p, v)
		printStatus(p, st)
	}
	switch {
	case err != nil:
		return err
	case v.Level == status.Stale:
		return answer{code: exitStale}
	case v.Level == status.Unknown:
		return answer{code: exitUnknown}
	}
	return nil
}

// refuseOlder returns an error if the schema is older than this binary can judge.
func refuseOlder(ctx context.Context, s *session.Sessions) error {
	if err := schema.RefuseOlder(ctx, s.DB()); errors.Is(err, schema.ErrOlder) {
		return fmt.Errorf("whether anything is stale is unknown: %w", err)
	}
	return nil
}

// bounded returns a count that is exact to store.MaxExactCount.
func bounded(n int) any {
	if n > store.MaxExactCount {
		return fmt.Sprintf(">%d", store.MaxExactCount)
	}
	return n
}

func statusObject(s store.Status, v status.Verdict) any {
	out := struct {
		verdictObject
		Waiting any `json:"waiting"`
		// null: unknown, since the times of all first rows are ahead
		OldestAgeSeconds *float64       `json:"oldest_age_seconds"`
		AheadSeconds     float64        `json:"created_ahead_seconds"`
		Delayed          any            `json:"delayed"`
		OverdueSeconds   float64        `json:"overdue_seconds"`
		Dead             int            `json:"dead"`
		DeadByReason     map[string]int `json:"dead_by_reason"`
		Sweeps           any            `json:"sweeps"`
		SweepsSettling   any            `json:"sweeps_settling"`
		SweepsRefused    any            `json:"sweeps_refused"`
		SweepError       string         `json:"sweep_error,omitempty"`
		SweepFailure     string         `json:"sweep_failure,omitempty"`
		SweepScan        *sweepScan     `json:"sweep_scan"`
		SweepSets        *sweepSets     `json:"sweep_sets"`
		LastBatch        *store.Batch   `json:"last_batch"`
		JournalDamaged   any            `json:"journal_damaged"`
		LastDamaged      *store.Batch   `json:"last_damaged_batch"`
		Pause            *store.Pause   `json:"pause"`
		Source           string         `json:"source"`
		Workers          []workerObject `json:"workers"`
		WorkersInRedis   string         `json:"workers_in_redis"` // read, not given or unreadable

		Figures      []figuresObject `json:"figures"` // null if they cannot be read
		FiguresMore  bool            `json:"figures_more_wait"`
		FiguresError string          `json:"figures_error,omitempty"`
	}{
		verdictObject: newVerdictObject(v), Workers: workerObjects(s.Workers),
		Waiting: bounded(s.Waiting), Delayed: bounded(s.Delayed),
		OverdueSeconds: s.Overdue.Seconds(), Dead: s.DeadTotal(), DeadByReason: s.Dead, Sweeps: bounded(s.Sweeps),
		SweepsSettling: bounded(s.Settling), SweepsRefused: bounded(s.SweepsRefused), SweepError: s.SweepError,
		Figures: figuresObjects(s), FiguresMore: s.Figures.Waiting.More,
		SweepScan: sweepScanObject(s.Scan), SweepSets: sweepSetsObject(s.Sets),
		Pause: s.Pause, Source: s.Source, JournalDamaged: bounded(s.Damaged),
		LastBatch: s.LastBatch, LastDamaged: s.LastDamaged,
	}
	out.WorkersInRedis, _ = workersInRedis(s)
	if s.FiguresError != nil {
		out.FiguresError = s.FiguresError.Error()
	}
	if age, known := oldestAge(s); known {
		out.OldestAgeSeconds = new(age.Seconds())
	}
	if s.Ahead != nil {
		out.AheadSeconds = -s.Ahead.Age.Seconds()
	}
	if s.SweepFailure != nil {
		out.SweepFailure = s.SweepFailure.Error
	}
	return out
}

// oldestAge returns the age of the oldest row. It is unknown if all are ahead of the database's
// clock.
func oldestAge(s store.Status) (age time.Duration, known bool) {
	return s.OldestAge, s.OldestAge > 0 || s.Ahead == nil
}

func printStatus(p process, s store.Status) {
	line := func(name string, value any, notes ...string) {
		fmt.Fprintln(p.Out, strings.TrimRight(fmt.Sprintf("%-12s %v  %s", name, value, strings.Join(notes, ", ")), " "))
	}
	if s.Pause != nil {
		account := []string{}
		if s.Pause.Account != "" {
			account = append(account, "database account "+printable(s.Pause.Account))
		}
		line("paused", printable(s.Pause.String()), account...)
	}
	line("waiting", bounded(s.Waiting))
	ahead := []string{}
	if s.Ahead != nil {
		ahead = append(ahead, fmt.Sprintf("row %d was created %s ahead of the database's clock", s.Ahead.ID, -s.Ahead.Age.Round(time.Millisecond)))
	}
	if age, known := oldestAge(s); known {
		line("oldest age", age.Round(time.Millisecond), ahead...)
	} else {
		line("oldest age", "unknown", ahead...)
	}
	overdue := []string{}
	if s.Overdue > 0 {
		overdue = append(overdue, "the first has been due for "+s.Overdue.Round(time.Millisecond).String())
	}
	line("delayed", bounded(s.Delayed), overdue...)
	reasons := []string{}
	for _, reason := range slices.Sorted(maps.Keys(s.Dead)) {
		reasons = append(reasons, fmt.Sprintf("%s: %d", reason, s.Dead[reason]))
	}
	line("dead", s.DeadTotal(), reasons...)
	sweeps := []string{}
	if s.Settling > 0 {
		sweeps = append(sweeps, fmt.Sprintf("%v of them swept once, and waiting for the second sweep", bounded(s.Settling)))
	}
	if s.SweepsRefused > 0 {
		sweeps = append(sweeps, fmt.Sprintf("%v refused by Redis, the last: %s", bounded(s.SweepsRefused), s.SweepError))
	}
	if f := s.SweepFailure; f != nil {
		sweeps = append(sweeps, printable(fmt.Sprintf("all fail in worker %s: %s", f.Worker, f.Error)))
	}
	line("sweeps", bounded(s.Sweeps), sweeps...)
	for _, p := range []*store.SweepProgress{s.Scan, s.Sets} {
		if p != nil {
			line("sweeping", printable(sweepScanText(p)))
		}
	}
	if b := s.LastBatch; b != nil {
		line("last batch", output.Things(b.Rows, "row"), b.SettledAt.Format(time.RFC3339), "worker "+b.Worker, "map "+b.MapVersion)
	} else {
		line("last batch", "none in the journal")
	}
	if b := s.LastDamaged; b != nil {
		line("damaged", fmt.Sprintf("%v of the journal's batches, which cannot be unlinked again", bounded(s.Damaged)),
			fmt.Sprintf("the last: batch %d of %s, %s", b.ID, b.SettledAt.Format(time.RFC3339), output.Things(b.Rows, "row")))
	}
	printFigures(line, s)
	if s.SourceError != nil {
		line("source", printable(s.SourceError.Error()))
	} else {
		line("source", s.Source)
	}
	if _, text := workersInRedis(s); text != "" {
		line("workers", printable(text))
	}
	printWorkers(line, s.Workers)
}

// workersInRedis returns the value of workers_in_redis, and a line for people where they do not know
// all workers.
func workersInRedis(s store.Status) (state, line string) {
	switch {
	case !s.AskedRedis:
		return "not given", "as MySQL knows them; --redis-url adds the status that they publish in Redis, even while MySQL refuses writes"
	case s.RedisError != nil:
		return "unreadable", "as MySQL knows them; the status that they publish in Redis cannot be read: " + s.RedisError.Error()
	}
	return "read", ""
}

// windowNames are the names of the windows of store.Figures, as text and in JSON.
var windowNames = []struct{ text, json string }{{"last hour", "1h"}, {"last 24 h", "24h"}, {"last 30 d", "30d"}}

// printFigures prints a line for each window.
func printFigures(line func(name string, value any, notes ...string), s store.Status) {
	if err := s.FiguresError; err != nil {
		line(windowNames[0].text, "unknown", printable(err.Error()))
		return
	}
	for i := range s.Figures.Windows {
		w := &s.Figures.Windows[i]
		notes := w.InTime()
		if s.Figures.Waiting.More {
			notes = append(notes, fmt.Sprintf("less in fact: only %d of the rows that wait are counted", store.MaxWaiting))
		}
		if text := w.Entries(); text != "" {
			notes = append(notes, text)
		}
		line(windowNames[i].text, output.Things(int(w.Invalidations()), "invalidation"), notes...)
	}
}

// A figuresObject is a window in JSON. Shares are null if there was nothing.
type figuresObject struct {
	Window        string   `json:"window"`
	Invalidations uint64   `json:"invalidations"` // settled, and dead letters
	Dead          uint64   `json:"dead"`
	Within100ms   *float64 `json:"within_100ms"`
	Within1s      *float64 `json:"within_1s"`
	Within10s     *float64 `json:"within_10s"`
	// rows that were late, dead or wait for longer
	Missed100ms uint64 `json:"missed_100ms"`
	Missed1s    uint64 `json:"missed_1s"`
	Missed10s   uint64 `json:"missed_10s"`

	Batches uint64 `json:"batches"`
	store.Checks

	PerEntry             *float64 `json:"stale_per_entry"`
	PerEntryBelow        float64  `json:"stale_per_entry_below"` // with 95% confidence
	PerInvalidation      *float64 `json:"stale_per_invalidation"`
	PerInvalidationBelow float64  `json:"stale_per_invalidation_below"`

	Shadows   uint64 `json:"shadow_reads"`
	Confirmed uint64 `json:"shadow_reads_confirmed"`
}

// figuresObjects returns the windows, or null if they cannot be read.
func figuresObjects(s store.Status) (list []figuresObject) {
	for i := range s.Figures.Windows {
		w := &s.Figures.Windows[i]
		a, b, c := w.Within(store.Limits[0]), w.Within(store.Limits[1]), w.Within(store.Limits[2])
		entry, invalidation := w.StalePerEntry(), w.StalePerInvalidation()
		list = append(list, figuresObject{
			Window: windowNames[i].json, Invalidations: w.Invalidations(), Dead: w.Dead,
			Within100ms: number(a.Ratio()), Within1s: number(b.Ratio()), Within10s: number(c.Ratio()),
			Missed100ms: a.All - a.In, Missed1s: b.All - b.In, Missed10s: c.All - c.In,
			Batches: w.Batches, Checks: w.Checks,
			PerEntry: number(entry.Share), PerEntryBelow: entry.Below,
			PerInvalidation: number(invalidation.Share), PerInvalidationBelow: invalidation.Below,
			Shadows: w.Shadows, Confirmed: w.Confirmed,
		})
	}
	return list
}

// number returns x, or nil if it is not a number.
func number(x float64) *float64 {
	if x != x {
		return nil
	}
	return &x
}

// A sweepScan is a scan of the keyspace that is under way, in JSON.
type sweepScan struct {
	Worker      string   `json:"worker"`
	Patterns    int      `json:"patterns"`
	Scanned     int64    `json:"scanned"`
	Total       *int64   `json:"total"` // null: not known
	Unlinked    int64    `json:"unlinked"`
	ForSeconds  float64  `json:"for_seconds"`
	LeftSeconds *float64 `json:"left_seconds"` // null: not known
}

func sweepScanObject(p *store.SweepProgress) *sweepScan {
	if p == nil {
		return nil
	}
	out := &sweepScan{Worker: p.Worker, Patterns: p.Patterns, Scanned: p.Scanned, Unlinked: p.Unlinked, ForSeconds: p.For().Seconds()}
	if p.Total > 0 {
		out.Total = &p.Total
	}
	out.LeftSeconds = leftSeconds(p)
	return out
}

func leftSeconds(p *store.SweepProgress) *float64 {
	if left, ok := p.Left(); ok {
		return new(left.Seconds())
	}
	return nil
}

// sweepSets are index sets that are being taken, in JSON.
type sweepSets struct {
	Worker      string   `json:"worker"`
	Taken       int64    `json:"taken"`
	Total       int64    `json:"total"`    // taken and waiting; 0: not known
	Unlinked    int64    `json:"unlinked"` // members
	ForSeconds  float64  `json:"for_seconds"`
	LeftSeconds *float64 `json:"left_seconds"` // null: not known
}

func sweepSetsObject(p *store.SweepProgress) *sweepSets {
	if p == nil {
		return nil
	}
	return &sweepSets{
		Worker: p.Worker, Taken: p.Scanned, Total: p.Total, Unlinked: p.Unlinked,
		ForSeconds: p.For().Seconds(), LeftSeconds: leftSeconds(p),
	}
}

// sweepScanText says the same in a line.
func sweepScanText(p *store.SweepProgress) string {
	text := output.Things(p.Scanned, "name") + " scanned"
	if p.Total > 0 {
		text = fmt.Sprintf("%d of %s scanned", p.Scanned, output.Things(p.Total, "name"))
	}
	text += fmt.Sprintf(" for %s in %s, %d unlinked", output.Things(p.Patterns, "pattern"), p.For().Round(time.Second), p.Unlinked)
	if p.Kind == store.SweepSet {
		text = output.Things(p.Scanned, "index set") + " taken"
		if p.Total > 0 {
			text = fmt.Sprintf("%d of %s taken", p.Scanned, output.Things(p.Total, "index set"))
		}
		text += fmt.Sprintf(" in %s, %s unlinked", p.For().Round(time.Second), output.Things(p.Unlinked, "member"))
	}
	if left, ok := p.Left(); ok {
		text += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	return text + ", by worker " + p.Worker
}

// printVerdict prints whether anything is stale: the first line, and one for each other cause.
func printVerdict(p process, v status.Verdict) {
	fmt.Fprintln(p.Out, printable(v.String()))
	for _, line := range v.Others() {
		fmt.Fprintln(p.Out, printable(line))
	}
}

// shownWorkers is how many workers are listed for people; --json lists all.
const shownWorkers = 10

// printWorkers lists the workers that live.
func printWorkers(line func(name string, value any, notes ...string), all []store.WorkerNote) {
	shown := 0
	for i := range all {
		w := &all[i]
		if !w.Lives() {
			continue
		}
		if shown++; shown > shownWorkers {
			line("worker", "and more; see --json")
			return
		}
		line("worker", printable(w.Name), w.State+" for "+w.For.Round(time.Second).String(), "map "+w.MapVersion, "heard "+w.Silent.Round(100*time.Millisecond).String()+" ago")
	}
}

// A verdictObject is the overall status in JSON.
type verdictObject struct {
	Verdict string        `json:"verdict"` // fresh, stale or unknown
	Says    string        `json:"says"`    // the first line
	At      time.Time     `json:"at"`      // the database's clock
	Causes  []causeObject `json:"causes"`
}

// A causeObject is one cause. Its level is the overall status that it alone would lead to.
type causeObject struct {
	Cause string     `json:"cause"`
	Level string     `json:"level"`
	Since *time.Time `json:"since"` // null: not known
	What  string     `json:"what"`
	Cure  string     `json:"cure"`
}

func newVerdictObject(v status.Verdict) verdictObject {
	out := verdictObject{v.Level.String(), v.String(), v.At, make([]causeObject, len(v.Causes))}
	for i, c := range v.Causes {
		out.Causes[i] = causeObject{Cause: c.Name, Level: c.Level.String(), What: c.What, Cure: c.Cure}
		if !c.Since.IsZero() {
			out.Causes[i].Since = &v.Causes[i].Since
		}
	}
	return out
}

// A workerObject is the status record of a worker of the last day, in JSON.
type workerObject struct {
	Name          string  `json:"name"`
	State         string  `json:"state"`
	Error         string  `json:"error,omitempty"`
	ForSeconds    float64 `json:"for_seconds"`
	SilentSeconds float64 `json:"silent_seconds"`
	// null: it has never found the outbox without rows to claim
	Drained    *float64 `json:"drained_seconds_ago"`
	MapVersion string   `json:"map_version"`
	MapError   string   `json:"map_error,omitempty"`
	MapWarning string   `json:"map_warning,omitempty"`
	// held or behind: why rows make no progress
	Stalled    string   `json:"stalled,omitempty"`
	StallError string   `json:"stall_error,omitempty"`   // which rows, and what to do
	Heavy      *float64 `json:"heavy_seconds,omitempty"` // since it has heavy rows to process
}

func workerObjects(all []store.WorkerNote) []workerObject {
	out := make([]workerObject, len(all))
	for i := range all {
		w := &all[i]
		out[i] = workerObject{w.Name, w.State, w.Error, w.For.Seconds(), w.Silent.Seconds(), nil, w.MapVersion, w.MapError, w.MapWarning, w.Stalled, w.StallError, nil}
		if w.Drained != nil {
			out[i].Drained = new(w.Drained.Seconds())
		}
		if w.Heavy != nil {
			out[i].Heavy = new(w.Heavy.Seconds())
		}
	}
	return out
}

// drawAgain puts the cursor of a terminal into the corner and clears the rest.
const drawAgain = "\x1b[H\x1b[2J"

// watching looks repeatedly until ctx ends. An error means unknown, and it continues: an operator
// may be watching an outage of MySQL.
func (c *statusCommand) watching(ctx context.Context, p process, s *session.Sessions) error {
	p.Stop.set(stopDone)
	page := !c.json && onTerminal(p.Out)
	for {
		st, v, err := c.looker.Look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := c.show(p, st, v, orSchema(ctx, s, err), page); err != nil {
			return err
		}
		if sleep.For(ctx, c.watch) != nil {
			return nil
		}
	}
}

// show writes one look.
func (c *statusCommand) show(p process, st store.Status, v status.Verdict, failed error, page bool) error {
	if failed != nil {
		v = status.Unread(failed)
	}
	switch {
	case c.json && failed != nil:
		return output.JSONLine(p.Out, newVerdictObject(v))
	case c.json:
		return output.JSONLine(p.Out, statusObject(st, v))
	case page:
		fmt.Fprint(p.Out, drawAgain)
		printVerdict(p, v)
		if failed == nil {
			printStatus(p, st)
		}
	default:
		_, err := fmt.Fprintf(p.Out, "%s  %s\n", time.Now().UTC().Format(time.RFC3339), printable(v.String()))
		return err
	}
	return nil
}
