package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Severity is the severity of a finding.
type Severity string

// The severities, in ascending order.
const (
	OK       Severity = "ok"
	Info     Severity = "info"
	Unknown  Severity = "unknown"  // it could not be seen
	Warning  Severity = "warning"  // it works, and will hurt
	Critical Severity = "critical" // rows wait, or keys stay stale
)

var severities = []Severity{OK, Info, Unknown, Warning, Critical}

// rank orders severities.
func (s Severity) rank() int { return slices.Index(severities, s) }

// AtLeast reports whether s is as bad as other, or worse.
func (s Severity) AtLeast(other Severity) bool { return s.rank() >= other.rank() }

// A Finding is the result of a check.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Title    string   `json:"title"`
	Evidence string   `json:"evidence,omitempty"` // what was seen
	// the next action: a statement, a rule, a flag
	Cure string `json:"cure,omitempty"`
}

// ok, found and unknown create a finding. Examine sets its Check.
func ok(format string, args ...any) Finding {
	return Finding{Severity: OK, Title: fmt.Sprintf(format, args...)}
}

func found(s Severity, title, evidence, cure string) Finding {
	return Finding{Severity: s, Title: title, Evidence: evidence, Cure: cure}
}

func unknown(title string, reason error, cure string) Finding {
	return found(Unknown, title, reason.Error(), cure)
}

// orOK returns findings, or if there are none one that says that all is well.
func orOK(all []Finding, format string, args ...any) []Finding {
	if len(all) > 0 {
		return all
	}
	return []Finding{ok(format, args...)}
}

// WriteDetails writes the evidence and the cure, each line as shown returns it.
func (f *Finding) WriteDetails(w io.Writer, shown func(string) string) {
	for _, part := range []struct{ name, text string }{{"seen", f.Evidence}, {"cure", f.Cure}} {
		for line := range strings.Lines(part.text) {
			fmt.Fprintf(w, "%8s  %-4s  %s\n", "", part.name, shown(strings.TrimRight(line, "\n")))
			part.name = ""
		}
	}
}

// Worst returns the worst severity of findings, OK if there is none.
func Worst(all []Finding) Severity {
	worst := OK
	for _, f := range all {
		if f.Severity.AtLeast(worst) {
			worst = f.Severity
		}
	}
	return worst
}

// Sort sorts by descending severity, and keeps the order of the checks otherwise.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(b.Severity.rank(), a.Severity.rank()) })
}

// Count returns the number of findings with a severity.
func Count(all []Finding, s Severity) (n int) {
	for _, f := range all {
		if f.Severity == s {
			n++
		}
	}
	return n
}
