package invalidation

import (
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/sqltext"
)

// A lookupReader reads lookups of shared params and of entities.
type lookupReader struct {
	*globals
	later *report // faults that this release accepts and the next one refuses
	all   []writtenLookup
	// lookups that were reported because they form a cycle, or a chain that is too long
	circles map[*Lookup]bool
}

// A writtenLookup is a lookup with the name of its param.
type writtenLookup struct {
	scalar
	lookup *Lookup
}

// read reads the lookup of a param, which finds values for others too.
func (c *lookupReader) read(part paramPart, with []string) *Lookup {
	l := &Lookup{Line: part.name.at.line, Column: part.name.at.column, Param: part.name.text, With: with, SQL: part.lookup.sql.text, Always: c.isTrue(part.lookup.always, "always")}
	if !part.lookup.hasBy {
		c.add(part.lookup.at, "", "the lookup of "+part.name.text+" has no by", "name what it is asked by: by: [id]")
	}
	for _, by := range part.lookup.by {
		if slices.Contains(l.By, by.text) {
			c.add(by.at, by.text, "given twice in by", "remove one of the two")
			continue
		}
		l.By = append(l.By, by.text)
		c.checkBy(l, by)
	}
	switch sql := part.lookup.sql; {
	case !part.lookup.hasSQL:
		c.add(part.lookup.at, "", "the lookup of "+part.name.text+" has no sql", cureSQL)
	case sql.given && c.plainText(sql):
		c.checkSQL(l, sql, part.unclearWith)
	}
	c.all = append(c.all, writtenLookup{part.name, l})
	return l
}

// checkSQL checks the statement of a lookup.
func (c *lookupReader) checkSQL(l *Lookup, sql scalar, unclearWith bool) {
	by := len(l.By)
	if unclearWith {
		by = 0 // the number of columns is unknown
	}
	faults, batch := sqlFaults(sql.text, by, l.Values())
	for _, fault := range faults {
		c.add(sql.at, fault.text, fault.problem, fault.cure)
	}
	for _, fault := range batch {
		l.Single, l.SingleReason = true, "its SQL has a fault"
		c.later.add(sql.at, fault.text, fault.problem, fault.cure)
	}
	if why := togetherFault(sqltext.Tokens(sql.text), by); why != "" && by > 0 && !l.Single {
		l.Single, l.SingleReason = true, why
	}
	for _, name := range namesInSQL(sql.text) {
		c.later.add(sql.at, "{"+name+"}", "the SQL of a lookup is not a template: the server gets {"+name+"} as it is written", c.cureName(l, name))
	}
}

// cureName returns how the statement of a lookup gets the value of a name.
func (c *lookupReader) cureName(l *Lookup, name string) string {
	switch {
	case slices.Contains(l.By, name):
		return "write IN (?): the server gets the values of by in place of the ?"
	case c.vars[name] != nil, c.each[name] != nil:
		return "write the value itself"
	}
	by := strings.Join(append(slices.Clone(l.By), name), ", ")
	return "ask by it too: by: [" + by + "], SELECT " + by + ", ... WHERE (" + by + ") IN (?)"
}

// checkBy checks what a lookup is asked by: the id, or a param, which may be looked up itself.
func (c *lookupReader) checkBy(l *Lookup, by scalar) {
	other := c.params[by.text]
	switch {
	case by.text == idName:
	case c.vars[by.text] != nil || c.each[by.text] != nil:
		what := "an enumeration"
		if v := c.vars[by.text]; v != nil {
			v.used, what = true, "a var"
		} else {
			c.each[by.text].used = true
		}
		c.add(by.at, by.text, "a lookup cannot be asked by "+what, "name id, or a param")
	case by.text == l.Param && !l.Always:
		c.add(by.at, by.text, "a lookup that is asked by what the row gives for its own param adds to that", "write always: true beside by, or ask by something else")
	case by.text == l.Param:
	case slices.Contains(l.With, by.text):
		c.add(by.at, by.text, "a lookup cannot be asked by what it finds", "name id, or another param")
	case other != nil && other.optional, c.leads[by.text] != "" && c.params[c.leads[by.text]].optional:
		c.add(by.at, by.text, "a lookup cannot be asked by an optional param", "remove optional there, or ask by something else")
	case !isName(by.text):
		c.add(by.at, by.text, "not a name", "name id, or a param")
	}
}
