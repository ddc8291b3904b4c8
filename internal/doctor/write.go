package doctor

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text writes a report for a terminal.
func (r *ReviewReport) Text(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintln(w, r.head())
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%-8s  %-9s %s\n", f.Severity, f.Check, printable(f.Title))
		for _, line := range []struct{ name, text string }{{"seen", f.Evidence}, {"cure", f.Cure}} {
			for text := range strings.Lines(line.text) {
				fmt.Fprintf(w, "%8s  %-4s  %s\n", "", line.name, printable(strings.TrimRight(text, "\n")))
				line.name = ""
			}
		}
	}
	for _, table := range r.tables() {
		fmt.Fprintf(w, "\n%s\n", table.title)
		tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{table.columns}, table.rows...) {
			fmt.Fprintln(tabs, strings.Join(row, "\t"))
		}
		_ = tabs.Flush() // its error is w's
	}
	return written(w)
}

func written(w *bufio.Writer) error {
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the review: %w", err)
	}
	return nil
}

// Markdown writes a report as a page.
func (r *ReviewReport) Markdown(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "# Review of keys\n\n%s\n\n| severity | check | finding | seen | cure |\n|---|---|---|---|---|\n", inMarkdown.Replace(r.head()))
	for _, f := range r.Findings {
		fmt.Fprintln(w, cells(string(f.Severity), f.Check, f.Title, f.Evidence, f.Cure))
	}
	for _, table := range r.tables() {
		fmt.Fprintf(w, "\n## %s\n\n%s\n|%s\n", table.title, cells(table.columns...), strings.Repeat("---|", len(table.columns)))
		for _, row := range table.rows {
			fmt.Fprintln(w, cells(row...))
		}
	}
	return written(w)
}

// inMarkdown escapes everything that Markdown or HTML would interpret: names are data.
var inMarkdown = strings.NewReplacer("\\", `\\`, "~", `\~`, "://", "&#58;//", "www.", "www&#46;", "@", "&#64;", "|", `\|`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`)

func cells(texts ...string) string {
	out := make([]string, len(texts))
	for i, text := range texts {
		lines := strings.Split(text, "\n")
		for i := range lines {
			lines[i] = inMarkdown.Replace(printable(lines[i]))
		}
		out[i] = strings.Join(lines, "<br>")
	}
	return "| " + strings.Join(out, " | ") + " |"
}

// head returns a summary of the walk.
func (r *ReviewReport) head() string {
	text := fmt.Sprintf("keys looked at: %d, families: %d", r.Walked.Keys, r.Families)
	if !r.Walked.All {
		text += ", keys in all: " + total(r.Walked.Total)
	}
	if r.Walked.Stopped != "" {
		text += "; stopped: " + strings.ReplaceAll(r.Walked.Stopped, "\n", "; ")
	}
	return printable(text)
}

// A table is a list of families.
type table struct {
	title   string
	columns []string
	rows    [][]string
}

func (r *ReviewReport) tables() (all []table) {
	biggest := table{"Biggest families", []string{"family", "reached by", "keys", "bytes", "largest", "without ttl"}, nil}
	for _, f := range r.Biggest {
		biggest.rows = append(biggest.rows, []string{quotedName(f.Name), f.by(), fmt.Sprint(f.Keys), fmt.Sprint(f.Bytes), fmt.Sprint(max(f.Largest, 0)), fmt.Sprint(f.Eternal)})
	}
	hottest := table{"Hottest families", []string{"family", "reached by", "keys", "hottest key", "its frequency, 0 to 255"}, nil}
	for _, f := range r.Hottest {
		hottest.rows = append(hottest.rows, []string{quotedName(f.Name), f.by(), fmt.Sprint(f.Keys), hottestKey(f.HottestKey), fmt.Sprint(f.Hottest)})
	}
	largest := table{"Largest keys", []string{"key", "bytes"}, nil}
	for _, k := range r.Largest {
		largest.rows = append(largest.rows, []string{quotedName(k.Name), fmt.Sprint(k.Bytes)})
	}
	for _, t := range []table{biggest, largest, hottest} {
		if len(t.rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// hottestKey formats a name, or returns "-" if names are hidden.
func hottestKey(n KeyName) string {
	if n == "" {
		return "-"
	}
	return quotedName(n)
}

// by returns the part of the map that names or reaches a family.
func (f *Family) by() string {
	if f.Own {
		return "unstale"
	}
	if f.Read != "" {
		return strings.TrimSuffix("read "+f.Read+", "+f.Entity, ", ")
	}
	return cmp.Or(f.Entity, "-")
}
