package invalidation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/near"
)

// A Fault is one thing that is wrong with a map, or advice about it.
type Fault struct {
	File string
	// Line and Column count from 1; Column counts characters.
	Line, Column int
	// Text is the offending text, or empty.
	Text string
	// Problem is what is wrong, Cure is the fix.
	Problem, Cure string
}

// maxFaultText is how many characters of the offending text are shown.
const maxFaultText = 80

// String returns the fault on one line: place, text, problem, cure.
func (f Fault) String() string {
	text := fmt.Sprintf("%s:%d:%d: ", f.File, f.Line, f.Column)
	if f.Text != "" {
		text += strconv.Quote(shorten(f.Text)) + ": "
	}
	text += f.Problem
	if f.Cure != "" {
		text += "; " + f.Cure
	}
	return text
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

// A place is a line and a column of the map, both counted from 1.
type place struct{ line, column int }

// A report collects the faults of one map.
type report struct {
	file    string
	faults  []Fault
	guesses int // how many names were looked at: see maxGuesses
}

// addFault records one fault. text is the text of the map at that place.
func (r *report) addFault(at place, text, problem, cure string) {
	r.faults = append(r.faults, Fault{
		File: r.file, Line: at.line, Column: at.column,
		Text: text, Problem: problem, Cure: cure,
	})
}

// maxGuesses is how many names are looked at, over a whole map, to find out what a fault may have
// meant. It keeps checking a map with a great many faults linear: those beyond are reported without
// a guess.
const maxGuesses = 1 << 20

// inFileOrder sorts faults, in place.
func inFileOrder(faults []Fault) []Fault {
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return faults
}

// maxListed is how many names a message lists.
const maxListed = 20

// quoteList writes names for a message: "a", "b" and "c".
func quoteList(names []string) string {
	var quoted []string
	for _, name := range names[:min(len(names), maxListed)] {
		quoted = append(quoted, strconv.Quote(name))
	}
	if more := len(names) - len(quoted); more > 0 {
		return strings.Join(quoted, ", ") + " and " + strconv.Itoa(more) + " more"
	}
	if last := len(quoted) - 1; last > 0 {
		return strings.Join(quoted[:last], ", ") + " and " + quoted[last]
	}
	return strings.Join(quoted, "")
}

// nearest returns the known name that is most like name, or "" where none is like it.
func (r *report) nearest(name string, known []string) string {
	if r.guesses += len(known); r.guesses > maxGuesses {
		return ""
	}
	return near.Name(name, known)
}

// didYouMean returns the cure for an unknown name: the nearest of the known ones, or otherwise.
func (r *report) didYouMean(name string, known []string, otherwise string) string {
	return near.Ask(r.nearest(name, known), otherwise)
}
