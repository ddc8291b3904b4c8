package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
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
	space  *keyspace.Keyspace // nil: no Redis was given
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
			s, err := c.mysql.open("status")
			if err != nil {
				return err
			}
			shut, err := c.openBoard()
			if err != nil {
				return errors.Join(err, s.Close())
			}
			return errors.Join(c.run(cmd.Context(), p, s), shut(), s.Close())
		},
	}
	c.mysql.add(cmd.Flags())
	c.redis.add(cmd.Flags())
	cmd.Flags().BoolVar(&c.json, "json", false, `print one JSON object; a count beyond 10000 is the text ">10000"`)
	cmd.Flags().DurationVar(&c.watch, "watch", 0, "refresh interval until Ctrl-C, 100ms to 1h (1s without a value)")
	cmd.Flags().Lookup("watch").NoOptDefVal = "1s"
	showEnv(cmd.Flags(), "json", "watch")
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

func (c *statusCommand) run(ctx context.Context, p process, s *session.Sessions) error {
	c.looker = status.New(s, c.space)
	if c.watch > 0 {
		return c.watching(ctx, p, s)
	}
	st, v, err := c.looker.LookTwice(ctx)
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

// bounded returns a count that is exact to store.MaxExactCount.
func bounded(n int) any {
	if n > store.MaxExactCount {
		return fmt.Sprintf(">%d", store.MaxExactCount)
	}
	return n
}

func statusObject(s store.Status, v status.Verdict) any {
	type batch struct {
		ID         uint64    `json:"id"`
		Worker     string    `json:"worker"`
		SettledAt  time.Time `json:"settled_at"`
		Rows       int       `json:"rows"`
		MapVersion string    `json:"map_version"`
	}
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
		LastBatch        *batch         `json:"last_batch"`
		JournalDamaged   any            `json:"journal_damaged"`
		LastDamaged      *batch         `json:"last_damaged_batch"`
		Pause            *pause         `json:"pause"`
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
	}
	out.WorkersInRedis, _ = workersInRedis(s)
	if s.FiguresError != nil {
		out.FiguresError = s.FiguresError.Error()
	}
	if age, known := oldestAge(s); known {
		seconds := age.Seconds()
		out.OldestAgeSeconds = &seconds
	}
	if s.Ahead != nil {
		out.AheadSeconds = -s.Ahead.Age.Seconds()
	}
	if s.SweepFailure != nil {
		out.SweepFailure = s.SweepFailure.Error
	}
	out.Pause, out.Source = pauseObject(s.Pause), s.Source
	out.JournalDamaged = bounded(s.Damaged)
	for b, field := range map[*store.Batch]**batch{s.LastBatch: &out.LastBatch, s.LastDamaged: &out.LastDamaged} {
		if b != nil {
			*field = &batch{b.ID, b.Worker, b.SettledAt, b.Rows, b.MapVersion}
		}
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
	for reason, n := range s.Dead {
		reasons = append(reasons, fmt.Sprintf("%s: %d", reason, n))
	}
	sort.Strings(reasons)
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
	if s.Scan != nil {
		line("sweeping", printable(sweepScanText(s.Scan)))
	}
	if s.Sets != nil {
		line("sweeping", printable(sweepScanText(s.Sets)))
	}
	if b := s.LastBatch; b != nil {
		line("last batch", count(b.Rows, "row"), b.SettledAt.Format(time.RFC3339), "worker "+b.Worker, "map "+b.MapVersion)
	} else {
		line("last batch", "none in the journal")
	}
	if b := s.LastDamaged; b != nil {
		line("damaged", fmt.Sprintf("%v of the journal's batches, which cannot be unlinked again", bounded(s.Damaged)),
			fmt.Sprintf("the last: batch %d of %s, %s", b.ID, b.SettledAt.Format(time.RFC3339), count(b.Rows, "row")))
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
