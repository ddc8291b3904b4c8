package main

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/store"
)

func newStatus(p process) *cobra.Command {
	var (
		f      mysqlFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what waits, what is delayed, what is dead and what was done last",
		Example: `  unstale status
  unstale status --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := f.open("status")
			if err != nil {
				return err
			}
			status, err := store.Status(cmd.Context())
			if err = errors.Join(orSchema(cmd.Context(), store, err), store.Close()); err != nil {
				return err
			}
			if asJSON {
				return output.JSON(p.Out, statusObject(status))
			}
			printStatus(p, status)
			return nil
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, `print one JSON object; a count beyond 10000 is the text ">10000"`)
	showEnv(cmd.Flags(), "json")
	return cmd
}

// bounded is a count that is exact to store.MaxExactCount.
func bounded(n int) any {
	if n > store.MaxExactCount {
		return fmt.Sprintf(">%d", store.MaxExactCount)
	}
	return n
}

func statusObject(s store.Status) any {
	type batch struct {
		ID         uint64    `json:"id"`
		Worker     string    `json:"worker"`
		SettledAt  time.Time `json:"settled_at"`
		Rows       int       `json:"rows"`
		MapVersion string    `json:"map_version"`
	}
	out := struct {
		Waiting          any            `json:"waiting"`
		OldestAgeSeconds float64        `json:"oldest_age_seconds"`
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
	}{
		Waiting: bounded(s.Waiting), OldestAgeSeconds: s.OldestAge.Seconds(), Delayed: bounded(s.Delayed),
		OverdueSeconds: s.Overdue.Seconds(), Dead: deadTotal(s), DeadByReason: s.Dead, Sweeps: bounded(s.Sweeps),
		SweepsSettling: bounded(s.Settling), SweepsRefused: bounded(s.SweepsRefused), SweepError: s.SweepError,
		SweepScan: sweepScanObject(s.Scan), SweepSets: sweepSetsObject(s.Sets),
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
	left, ok := p.Left()
	if !ok {
		return nil
	}
	seconds := left.Seconds()
	return &seconds
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
	text := count(p.Scanned, "name") + " scanned"
	if p.Total > 0 {
		text = fmt.Sprintf("%d of %s scanned", p.Scanned, count(p.Total, "name"))
	}
	text += fmt.Sprintf(" for %s in %s, %d unlinked", count(p.Patterns, "pattern"), p.For().Round(time.Second), p.Unlinked)
	if p.Kind == store.SweepSet {
		text = count(p.Scanned, "index set") + " taken"
		if p.Total > 0 {
			text = fmt.Sprintf("%d of %s taken", p.Scanned, count(p.Total, "index set"))
		}
		text += fmt.Sprintf(" in %s, %s unlinked", p.For().Round(time.Second), count(p.Unlinked, "member"))
	}
	if left, ok := p.Left(); ok {
		text += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	return text + ", by worker " + p.Worker
}

func deadTotal(s store.Status) (n int) {
	for _, k := range s.Dead {
		n += k
	}
	return n
}

func printStatus(p process, s store.Status) {
	line := func(name string, value any, notes ...string) {
		fmt.Fprintln(p.Out, strings.TrimRight(fmt.Sprintf("%-12s %v  %s", name, value, strings.Join(notes, ", ")), " "))
	}
	if s.Pause != nil {
		line("paused", printable(s.Pause.String()))
	}
	line("waiting", bounded(s.Waiting))
	line("oldest age", s.OldestAge.Round(time.Millisecond))
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
	line("dead", deadTotal(s), reasons...)
	sweeps := []string{}
	if s.Settling > 0 {
		sweeps = append(sweeps, fmt.Sprintf("%v of them swept once, and settling", bounded(s.Settling)))
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
		line("damaged", fmt.Sprintf("%v of the journal's batches, which nobody can unlink again", bounded(s.Damaged)),
			fmt.Sprintf("the last: batch %d of %s, %s", b.ID, b.SettledAt.Format(time.RFC3339), count(b.Rows, "row")))
	}
	if s.SourceError != nil {
		line("source", printable(s.SourceError.Error()))
	} else {
		line("source", s.Source)
	}
}
