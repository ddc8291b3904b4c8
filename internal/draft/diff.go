package draft

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/sqltext"
	"github.com/unstale/unstale/invalidation"
)

// A Difference is a part of the tables that a map lacks, or a part of a map that the tables lack.
type Difference struct {
	Table  string `json:"table"`
	Column string `json:"column,omitempty"`
	// new table, new column, new foreign key, gone table or gone column
	State string `json:"state"`
	Text  string `json:"text"` // what to do
}

// notWatched matches the list of columns that a draft leaves out.
var notWatched = regexp.MustCompile(`Not watched[^:]*: (.*?)\.(\s|$)`)

// isLeftOut reports whether a line of text leaves out a table or a column, with the reason.
func isLeftOut(text, name string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "# - "+scalar(name)+":") {
			return true
		}
	}
	return false
}

// Diff compares the tables with an existing map. A table, column or foreign key that a comment of
// the map leaves out, in the form of a draft, is not new.
func (d *Draft) Diff(m *invalidation.Map, src []byte) (all []Difference) {
	lines := strings.Split(string(src), "\n")
	byTable := map[string][]invalidation.Capture{}
	for _, c := range m.Captures() {
		byTable[c.Table] = append(byTable[c.Table], c)
	}
	for _, e := range d.all {
		switch captures := byTable[e.Name]; {
		case len(captures) > 0:
			all = append(all, diffTable(e, captures, commentAbove(lines, captures[0], e.Name))...)
		case len(e.captures()) > 0 && !isLeftOut(string(src), e.Name):
			all = append(all, Difference{Table: e.Name, State: "new table", Text: "capture it, or write the comment # - " + scalar(e.Name) + ": why not"})
		}
	}
	for _, c := range m.Captures() {
		if gone := !slices.Contains(d.present, c.Table); gone && len(byTable[c.Table]) > 0 {
			all = append(all, Difference{Table: c.Table, State: "gone table", Text: "remove its capture, or its writes fail after it was renamed"})
			delete(byTable, c.Table)
		}
	}
	return all
}

// commentAbove returns the lines of the comment above the captures of a table.
func commentAbove(lines []string, first invalidation.Capture, table string) (text string) {
	for i := min(first.Line, len(lines)) - 1; i >= 0; i-- {
		line := strings.TrimSpace(lines[i])
		switch {
		case strings.HasPrefix(line, "#"):
			text = line + "\n" + text
		case i != first.Line-1 && !(strings.HasPrefix(line, scalar(table)+":") && text == ""):
			return text
		}
	}
	return text
}

// diffTable compares a table with its captures. A comment may leave columns out.
func diffTable(e *entity, captures []invalidation.Capture, comment string) (all []Difference) {
	watchesAll := false
	var used []string // columns and expressions
	for _, c := range captures {
		watchesAll = watchesAll || len(c.Watch) == 0 && c.Update
		used = append(used, string(c.ID))
		for _, p := range c.Params {
			used = append(used, string(p.Source))
		}
	}
	sources := slices.Clone(used)
	for _, c := range captures {
		used = append(used, c.Watch...)
	}
	for _, name := range used {
		isColumn := !invalidation.Source(name).IsExpression() && len(e.named([]string{name})) == 0
		if isColumn && !slices.ContainsFunc(all, func(d Difference) bool { return d.Column == name }) {
			all = append(all, Difference{e.Name, name, "gone column", "remove it from the capture: each write fails without it"})
		}
	}
	uses := func(in []string, column string) bool {
		return slices.ContainsFunc(in, func(s string) bool {
			return strings.EqualFold(s, column) || invalidation.Source(s).IsExpression() && names(s, column)
		})
	}
	unwatched := ""
	if m := notWatched.FindStringSubmatch(strings.ReplaceAll(comment, "\n#", " ")); m != nil {
		unwatched = m[1]
	}
	left := strings.FieldsFunc(unwatched, func(r rune) bool { return r == ',' || r == ' ' })
	isDecided := func(column string) bool {
		return slices.Contains(left, scalar(column)) || isLeftOut(comment, column)
	}
	for _, c := range e.Columns {
		if !watchesAll && !uses(used, c.Name) && !slices.Contains(e.left, c.Name) && !isDecided(c.Name) {
			all = append(all, Difference{e.Name, c.Name, "new column", "add it to watch, or write the comment # - " + scalar(c.Name) + ": why not, above the capture"})
		}
	}
	for _, l := range e.parents() {
		if column := l.Columns[0]; !l.guessed && !uses(sources, column) && !isDecided(column) {
			all = append(all, Difference{e.Name, column, "new foreign key", fmt.Sprintf("add it to the params of the capture, and as: { %s: ... } to the entity, or write the comment # - %s: why not, above the capture", scalar(l.parent.name), scalar(column))})
		}
	}
	return all
}

// names reports whether an expression has a column of the row.
func names(expression, column string) bool {
	tokens := sqltext.Tokens(expression)
	for i := 1; i < len(tokens); i++ {
		if tokens[i-1] == "." && strings.EqualFold(strings.Trim(tokens[i], "`"), column) {
			return true
		}
	}
	return false
}
