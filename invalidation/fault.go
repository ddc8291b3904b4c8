package invalidation

import (
	"fmt"
	"strconv"
	"strings"
)

// A Fault is one thing that is wrong with a map, or advice about it.
type Fault struct {
	File string
	// Line and Column count from 1; Column counts characters.
	Line, Column int
	// Text is the offending text, or empty.
	Text string
	// Problem says what is wrong, Cure what to do.
	Problem, Cure string
}

// maxFaultText is how many characters of the offending text are shown.
const maxFaultText = 80

// String returns the fault on one line: place, text, problem, cure.
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", f.File, f.Line, f.Column)
	if f.Text != "" {
		b.WriteString(strconv.Quote(shorten(f.Text)))
		b.WriteString(": ")
	}
	b.WriteString(f.Problem)
	if f.Cure != "" {
		b.WriteString("; ")
		b.WriteString(f.Cure)
	}
	return b.String()
}

func shorten(text string) string {
	n := 0
	for i := range text {
		if n++; n > maxFaultText {
			return text[:i] + "..."
		}
	}
	return text
}

// Faults are all faults of a map, in file order.
type Faults []Fault

// Error returns the faults, one per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}
