package doctor

import (
	"cmp"
	"fmt"
	"slices"
)

// A Severity says how bad a finding is.
type Severity string

// The severities, the least first.
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

// A Finding is what a check has found.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Title    string   `json:"title"`
	Evidence string   `json:"evidence,omitempty"` // what was seen
	Cure     string   `json:"cure,omitempty"`     // the next thing to do: a statement, a rule, a flag
}

// well, and its kin, make a finding. Check is filled in by whoever runs the check.
func well(format string, args ...any) Finding {
	return Finding{Severity: OK, Title: fmt.Sprintf(format, args...)}
}

func found(s Severity, title, evidence, cure string) Finding {
	return Finding{Severity: s, Title: title, Evidence: evidence, Cure: cure}
}

func unseen(title string, reason error, cure string) Finding {
	return found(Unknown, title, reason.Error(), cure)
}

// Worst is the worst severity of findings, OK if there is none.
func Worst(all []Finding) Severity {
	worst := OK
	for _, f := range all {
		if f.Severity.AtLeast(worst) {
			worst = f.Severity
		}
	}
	return worst
}

// Sort puts the worst first, and otherwise keeps the order of the checks.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(b.Severity.rank(), a.Severity.rank()) })
}

// Count is how many findings have a severity.
func Count(all []Finding, s Severity) (n int) {
	for _, f := range all {
		if f.Severity == s {
			n++
		}
	}
	return n
}
