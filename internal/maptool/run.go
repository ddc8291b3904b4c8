package maptool

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// A CaseResult is the outcome of a case.
type CaseResult struct {
	Name     string   `json:"name"`
	Line     int      `json:"line"`
	Problems []string `json:"problems"` // none: it is as expected
}

// A CaseTemplate is a template of the map, or an entity without templates.
type CaseTemplate struct {
	Entity string `json:"entity"`
	Kind   string `json:"kind,omitempty"`
	Text   string `json:"template,omitempty"`
}

// A CaseReport is the outcome of all cases. The lists are never null.
type CaseReport struct {
	Cases  []CaseResult `json:"cases"`
	Failed int          `json:"failed"`
	// Entities and Templates are the numbers in the map. Touched counts those that a row of some
	// case reaches.
	Entities         int            `json:"entities"`
	EntitiesTouched  int            `json:"entities_touched"`
	Templates        int            `json:"templates"`
	TemplatesTouched int            `json:"templates_touched"`
	Untouched        []CaseTemplate `json:"untouched"`
}

// RunCases checks all cases.
func RunCases(m *invalidation.Map, cases []Case) *CaseReport {
	r := &CaseReport{Cases: []CaseResult{}, Untouched: []CaseTemplate{}}
	touched := map[CaseTemplate]bool{}
	reads := readsOf(m)
	for i := range cases {
		c := &cases[i]
		problems := c.mismatches(m, reads, touched)
		if len(problems) > 0 {
			r.Failed++
			problems = append(problems, c.misspelled(m)...)
		}
		r.Cases = append(r.Cases, CaseResult{c.title(), c.Line(), append([]string{}, problems...)})
	}
	r.cover(m, touched)
	return r
}

// misspelled suggests corrections for the names in a case that fails.
func (c *Case) misspelled(m *invalidation.Map) (problems []string) {
	entity := c.Row.Entity.Value
	d, known := m.Describe(entity)
	if !known {
		return hint(nil, "the entity", entity, m.Entities())
	}
	for _, name := range m.Undeclared(c.written()) {
		problems = hint(problems, "the parameter", name, d.Params)
	}
	var found []string
	for _, l := range m.Lookups() {
		found = append(append(found, l.Param), l.With...)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Lookups)) {
		if !slices.Contains(found, name) {
			problems = hint(problems, "the lookup of", name, found)
		}
	}
	return problems
}

// hint adds a problem for a name that resembles a known one.
func hint(problems []string, what, name string, known []string) []string {
	if ask := near.DidYouMean(name, known, ""); ask != "" {
		problems = append(problems, fmt.Sprintf("the map does not have %s %q; %s", what, name, ask))
	}
	return problems
}

// cover counts the touched entities and templates.
func (r *CaseReport) cover(m *invalidation.Map, touched map[CaseTemplate]bool) {
	made := map[string]bool{} // entities with templates
	for _, n := range m.Names() {
		t := CaseTemplate{n.Entity, string(n.Kind), n.Text}
		made[n.Entity] = true
		r.Templates++
		if touched[t] {
			r.TemplatesTouched++
		} else {
			r.Untouched = append(r.Untouched, t)
		}
	}
	for _, name := range m.Entities() {
		r.Entities++
		switch {
		case touched[CaseTemplate{Entity: name}]:
			r.EntitiesTouched++
		case !made[name]:
			r.Untouched = append(r.Untouched, CaseTemplate{Entity: name})
		}
	}
}

// mismatches returns the differences from the expected result.
func (c *Case) mismatches(m *invalidation.Map, reads *reads, touched map[CaseTemplate]bool) (problems []string) {
	answers, problems, err := c.answers(m)
	if len(problems) > 0 {
		return problems
	}
	var made []invalidation.Expanded
	if err == nil {
		made, err = m.ExpandByTemplate(c.written(), answers)
	}
	refused := (*invalidation.RowError)(nil)
	switch want := invalidation.Reason(c.Refused.Value); {
	case err != nil && !errors.As(err, &refused):
		return []string{err.Error()}
	case err != nil && refused.Reason == want:
		return nil
	case err != nil:
		return []string{"the map refuses the row: " + err.Error()}
	case want != "":
		problems = append(problems, fmt.Sprintf("the row is not refused, wanted %s", want))
	}
	touched[CaseTemplate{Entity: c.Row.Entity.Value}] = true
	for _, one := range made {
		if len(one.Names) > 0 {
			touched[CaseTemplate{Entity: one.Entity}] = true
			touched[CaseTemplate{one.Entity, string(one.Kind), one.Text}] = true
		}
	}
	texts, lines := slices.Concat(c.Reaches.texts, c.Spares.texts), slices.Concat(c.Reaches.lines, c.Spares.lines)
	for i, text := range texts {
		names, problem := reads.expand(text)
		by, wanted := reachedBy(made, names), i < len(c.Reaches.texts)
		switch line := lines[i]; {
		case problem != "":
			problems = append(problems, fmt.Sprintf("%s (line %d) %s", text, line, problem))
		case wanted && by == nil:
			problems = append(problems, fmt.Sprintf("it does not reach %s (line %d); it reaches %s", shown(text, names), line, namesOf(made)))
		case !wanted && by != nil:
			problems = append(problems, fmt.Sprintf("it reaches %s (line %d) by the %s %q of %s", shown(text, names), line, by.Kind, by.Text, by.Entity))
		}
	}
	return problems
}

// answers sets the results of the row's lookups to those of the case. The error is that of a row
// that is refused before any lookup.
func (c *Case) answers(m *invalidation.Map) (answers *invalidation.Answers, problems []string, refused error) {
	answers = &invalidation.Answers{}
	asked := map[string]bool{}
	for range m.Ranks() {
		needs, err := m.Needs(c.written(), answers)
		if err != nil {
			return nil, nil, err
		}
		for _, n := range needs {
			found, problem := c.finds(n.Lookup)
			if problem != "" && !asked[n.Lookup.Param] {
				problems = append(problems, problem)
			}
			for _, name := range append([]string{n.Lookup.Param}, n.Lookup.With...) {
				asked[name] = true
			}
			answers.Put(n, found)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Lookups)) {
		if found := c.Lookups[name]; found.given && !asked[name] {
			problems = append(problems, fmt.Sprintf("no lookup is asked for %s (line %d): the row gives it, or nothing uses it", name, found.line))
		}
	}
	return answers, problems, nil
}

// finds returns the rows that a lookup finds according to the case: one list for each of its names,
// whose values belong together.
func (c *Case) finds(l *invalidation.Lookup) (rows []string, problem string) {
	names := append([]string{l.Param}, l.With...)
	count := len(c.Lookups[l.Param].texts)
	for _, name := range names {
		switch found := c.Lookups[name]; {
		case !found.given:
			say := fmt.Sprintf("say what, with lookups: {%s: [7]}", strings.Join(names, ": [7], "))
			if l.Always {
				return nil, fmt.Sprintf("a lookup finds %s in addition to the values of the row: %s", name, say)
			}
			return nil, fmt.Sprintf("the row does not give %s, and a lookup finds it: %s, or give it", name, say)
		case len(found.texts) != count:
			return nil, fmt.Sprintf("the lookups of %s find %d values and those of %s %d (line %d): they go together, so give as many of each", l.Param, count, name, len(found.texts), found.line)
		}
	}
	for i := range count {
		for _, name := range names {
			rows = append(rows, c.Lookups[name].texts[i])
		}
	}
	return rows, ""
}

// reachedBy returns the expansion that reaches one of some keys: the key itself, a set or a pattern
// of that name, or a pattern that matches it.
func reachedBy(made []invalidation.Expanded, keys []string) *invalidation.Expanded {
	for i := range made {
		if slices.ContainsFunc(made[i].Names, func(name string) bool {
			if slices.Contains(keys, name) || made[i].Kind != invalidation.KindPattern {
				return slices.Contains(keys, name)
			}
			g, err := protocol.CompileGlob(name)
			return err == nil && slices.ContainsFunc(keys, g.Match)
		}) {
			return &made[i]
		}
	}
	return nil
}

// shown returns a text of a case as messages have it: a key in quotes, and a read with its names.
func shown(text string, names []string) string {
	if len(names) == 1 && names[0] == text {
		return strconv.Quote(text)
	}
	return fmt.Sprintf("%s, which is %q", text, names)
}

// mostListed is the maximum number of names in a problem.
const mostListed = 5

func namesOf(made []invalidation.Expanded) string {
	var names []string
	for _, one := range made {
		names = append(names, one.Names...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return "nothing"
	}
	var quoted []string
	for _, name := range names[:min(len(names), mostListed)] {
		quoted = append(quoted, strconv.Quote(name))
	}
	text := strings.Join(quoted, ", ")
	if more := len(names) - mostListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
