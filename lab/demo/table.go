package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteTable writes the report as text, within 100 columns.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	r.writeHeading(&b)
	r.writeReaders(&b)
	r.writeChangesHeading(&b)
	r.writeChanges(&b)
	b.WriteByte('\n')
	if r.OK {
		r.writeSummary(&b)
	}
	for _, f := range r.Faults {
		fmt.Fprintf(&b, "WRONG: %s\n", f)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (r *Report) writeHeading(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s, %s, map %s %s\n", r.MySQL, r.Redis, r.Map, r.MapVersion)
}

func (r *Report) writeChangesHeading(b *strings.Builder) {
	fmt.Fprintf(b, "\n4. Transactions and their keys. The shop caches %d keys; all of them begin with %s\n", r.Keys, r.Prefix)
	b.WriteString(`Both times start when COMMIT returns. gone: until none of the keys is in Redis (checked every
millisecond). received: until a subscriber receives the message; its number follows.

`)
}

// A tableRow is one line of the table.
type tableRow [5]string

func (r *Report) writeChanges(b *strings.Builder) {
	rows := []tableRow{{"change", "key or pattern", "keys", "gone, ms", "received, ms"}}
	for _, c := range r.Changes {
		name := c.Name
		for _, t := range c.Targets {
			rows = append(rows, tableRow{name, t.Name, fmt.Sprint(t.Keys), c.gone(t), c.heard(t)})
			name = ""
		}
	}
	var widths [5]int
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, row := range rows {
		line := fmt.Sprintf("%-*s  %-*s  %*s  %*s  %*s", widths[0], row[0], widths[1], row[1], widths[2], row[2], widths[3], row[3], widths[4], row[4])
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// gone describes the state of a target's keys. Capitals mark keys that should not exist.
func (c Change) gone(t Target) string {
	switch {
	case !c.Judged:
		return "?"
	case c.RolledBack && t.Left == t.Keys:
		return "stayed"
	case c.RolledBack:
		return fmt.Sprintf("%d GONE", t.Keys-t.Left)
	case t.Left > 0 || t.GoneMS == nil:
		return fmt.Sprintf("%d STAYED", t.Left)
	}
	return fmt.Sprintf("%.1f", *t.GoneMS)
}

// heard describes the message that the subscriber received for a target.
func (c Change) heard(t Target) string {
	switch {
	case !c.Judged && t.HeardMS == nil:
		return "?"
	case c.RolledBack && t.HeardMS == nil:
		return "none"
	case t.HeardMS == nil:
		return "NONE"
	}
	text := fmt.Sprintf("%.1f", *t.HeardMS)
	if c.RolledBack {
		text = "RECEIVED"
	}
	if t.Seq > 0 {
		text += fmt.Sprintf("  #%-3d", t.Seq)
	}
	return text
}

// writeSummary counts the results of a successful run.
func (r *Report) writeSummary(b *strings.Builder) {
	naive, ours := r.Readers[0], r.Readers[1]
	fmt.Fprintf(b, "Naive readers left %d old prices in Redis. Package cache left none and refused %d fills.\n",
		1+len(naive.Old), 1+ours.Refused)
	var committed, rolledBack, keys, patterns, values int
	var times []float64
	for _, c := range r.Changes {
		if c.RolledBack {
			rolledBack++
			continue
		}
		committed++
		for _, t := range c.Targets {
			if t.Pattern {
				patterns++
			} else {
				keys++
			}
			values += t.Keys
			times = append(times, *t.GoneMS)
		}
	}
	slices.Sort(times)
	fmt.Fprintf(b, "%d committed changes: %d keys and %d patterns deleted %d cached values; all other keys stayed.\n", committed, keys, patterns, values)
	fmt.Fprintf(b, "%d rolled back: its keys stayed, and no message was sent (checked after a later change).\n", rolledBack)
	b.WriteString("At the end, every cached value was compared with MySQL: none is stale.\n")
	fmt.Fprintf(b, "Time from COMMIT until the keys were gone: median %.1f ms, longest %.1f ms.\n", times[len(times)/2], times[len(times)-1])
}
