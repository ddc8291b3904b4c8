package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/protocol"
)

func (h *historyCommand) print(p process, all *history.Past) {
	switch {
	case len(all.Found) == 0 && all.Since == nil:
		fmt.Fprintln(p.Out, "nothing: the journal is empty")
	case len(all.Found) == 0:
		fmt.Fprintf(p.Out, "nothing; the journal begins at %s\n", all.Since.Format(time.RFC3339))
	case all.More:
		fmt.Fprintln(p.Out, "older ones are left out; see --limit and --since")
	}
	stale := all.Stale
	for i := range all.Found {
		stale = printStale(p, stale, all.Found[i].SettledAt)
		h.printOne(p, &all.Found[i])
	}
	printStale(p, stale, time.Time{})
	printUnreported(p, all.Unreported)
	for _, id := range all.Damaged {
		fmt.Fprintf(p.Out, "batch %d of the journal cannot be read, and may have more\n", id)
	}
	for _, text := range all.Untold {
		fmt.Fprintf(p.Out, "note: %s\n", printable(text))
	}
	for _, w := range all.Waits {
		printWhereabout(p, w)
	}
	if all.Now != nil {
		printReads(p, all.Reads)
		printNow(p, all.Now)
	}
	if h.query.Key != "" && len(all.Found) == 0 {
		fmt.Fprintln(p.Out, "unknown: whether Redis evicted or expired the key, whether it was a member of a cleared set, and deletes by others")
	}
	if a := all.Answer; a != nil {
		fmt.Fprintf(p.Out, "answer: %s\n", a.Text)
		for _, next := range a.Next {
			fmt.Fprintf(p.Out, "next: %s\n", next)
		}
	}
}

func (h *historyCommand) printOne(p process, s *history.Settlement) {
	what := fmt.Sprintf("row %d", s.Row)
	switch {
	case s.Sweep != 0:
		what = fmt.Sprintf("sweep %d", s.Sweep)
	case s.Row == 0:
		what = "scheduled by the application"
	}
	if s.Entity != "" {
		what += "  " + printable(s.Entity) + " " + printable(s.EntityID)
	}
	fmt.Fprintf(p.Out, "%s  batch %d  %s  worker %s  map %s\n", s.SettledAt.Format(time.RFC3339Nano), s.Batch, what, printable(s.Worker), s.MapVersion)
	if s.Sweep == 0 {
		fmt.Fprintf(p.Out, "  journey  %s\n", timeline(s))
	}
	if s.Partial {
		fmt.Fprintln(p.Out, "  partial  a lookup failed: these names need none, the rest was not unlinked then")
	}
	if s.Trace != "" {
		fmt.Fprintf(p.Out, "  trace    %s\n", printable(s.Trace))
	}
	keys, tags := withoutStamps(h.reaching(s.Keys))
	printList(p, "key", keys)
	printList(p, "stamp", tags)
	printList(p, "pattern", h.matching(s.Patterns))
	printList(p, "set", h.reaching(s.Sets))
}

// timeline returns the timeline of a row, each step relative to when the row was written.
func timeline(s *history.Settlement) string {
	if s.WrittenAt == nil {
		return "unknown: a worker of an older version settled it"
	}
	step := func(what string, at *time.Time) string {
		if at == nil {
			return what + " unknown"
		}
		return what + " +" + at.Sub(*s.WrittenAt).Round(time.Microsecond).String()
	}
	published := "nothing published"
	if s.PublishedAt != nil {
		published = step("published", s.PublishedAt) + " to "
		if s.Receivers == nil {
			published += "an unknown number of receivers"
		} else {
			published += count(*s.Receivers, "receiver")
		}
		if s.MayBeEvicted() {
			published += evicted(s)
		}
	}
	return strings.Join([]string{"written " + s.WrittenAt.Format(time.RFC3339Nano), step("claimed", s.ClaimedAt), step("unlinked", s.UnlinkedAt),
		published, step("settled", &s.SettledAt)}, ", ")
}

// reaching leaves out what did not unlink the key that was asked for: a row may have thousands.
func (h *historyCommand) reaching(names []string) []string {
	if h.query.Key == "" {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name != h.query.Key })
}

func (h *historyCommand) matching(patterns []string) []string {
	if h.query.Key == "" {
		return patterns
	}
	return slices.DeleteFunc(slices.Clone(patterns), func(pattern string) bool {
		glob, err := protocol.CompileGlob(pattern)
		return err != nil || !glob.Match(h.query.Key)
	})
}

func printWhereabout(p process, w history.Whereabout) {
	text := fmt.Sprintf("now: row %d ", w.Row)
	if w.Row == 0 {
		text = "now: a scheduled row "
	}
	switch w.Where {
	case "delayed":
		text += "is delayed until " + w.DueAt.Format(time.RFC3339)
	case "dead":
		text += "is a dead letter, see unstale dead list"
	default:
		text += "waits in cache_outbox"
	}
	for _, more := range []string{w.Reason, w.Error} {
		if more != "" {
			text += ": " + printable(more)
		}
	}
	fmt.Fprintln(p.Out, text)
}

// shownNames is how many keys, patterns or sets of a row are listed for people; --json lists all.
const shownNames = 10

func printList(p process, name string, list []string) {
	for i, text := range list {
		if i == shownNames {
			fmt.Fprintf(p.Out, "  %-8s and %d more; see --json\n", name, len(list)-i)
			return
		}
		fmt.Fprintln(p.Out, strings.TrimRight(fmt.Sprintf("  %-8s %s", name, printable(text)), " "))
	}
}

// printStale prints the stale entries that were found before a time, and returns the others. The
// zero time is after all.
func printStale(p process, list []history.Stale, before time.Time) []history.Stale {
	for len(list) > 0 && (before.IsZero() || list[0].FoundAt.Before(before)) {
		s := list[0]
		list = list[1:]
		what := "stored during a hold"
		if s.LeasedAt != nil && s.LeasedAt.Before(s.UnlinkedAt) {
			what = fmt.Sprintf("leased %s before the UNLINK", s.UnlinkedAt.Sub(*s.LeasedAt))
		}
		end := "not unlinked"
		if s.Repaired {
			end = "unlinked again"
		}
		fmt.Fprintf(p.Out, "%s  stale entry  row %d  worker %s: %s, %s\n", s.FoundAt.Format(time.RFC3339Nano), s.Row, printable(s.Worker), what, end)
	}
	return list
}
