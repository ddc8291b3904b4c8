package invalidation

import (
	"slices"
	"strconv"
	"strings"
)

// idName is the reserved name of the row's id.
const idName = "id"

// A compiler turns a document into a Map. It reports every fault that it finds; the map is good only if there is none.
type compiler struct {
	*report
	doc *document
	env func(string) (string, bool)

	limits   Limits
	vars     map[string]*variable
	shared   map[string]*sharedParam
	entities map[string]*entityCompiler
	order    []*entityCompiler
	names    []string // of entities, sorted
}

// A variable is an entry of vars.
type variable struct {
	at    place
	value string
	used  bool
}

// A sharedParam is an entry of the shared params.
type sharedParam struct {
	at       place
	optional bool
	lookup   *Lookup
	part     paramPart
	used     bool
}

func (c *compiler) compile() *Map {
	m := &Map{}
	c.version()
	c.readVars()
	m.channel, m.format = c.publish()
	m.lease = c.lease()
	m.limits = c.readLimits()
	c.limits = m.limits
	c.readParams()
	c.readEntities()
	c.checkUnused()
	c.checkNames()
	m.names = c.names
	m.entities = make(map[string]*entity, len(c.entities))
	for name, e := range c.entities {
		m.entities[name] = e.entity
	}
	m.captures = c.readCaptures()
	return m
}

func (c *compiler) version() {
	v := c.doc.version
	switch {
	case v.given && v.text != "1":
		c.add(v.at, v.text, "unknown version of the map's grammar", "write version: 1")
	case !c.doc.hasVersion:
		c.add(c.doc.at, "", "version is missing", "write version: 1 in the first line")
	}
}

// plainText reports ${...} in a text that is not under vars.
func (c *compiler) plainText(s scalar) bool {
	i := strings.Index(s.text, "${")
	if i < 0 {
		return true
	}
	text, _, closed := strings.Cut(s.text[i:], "}")
	if closed {
		text += "}"
	}
	c.add(s.at, text, "${...} is read only under vars", "give the value a name under vars and write {name}")
	return false
}

// hasControl reports whether text has a line break or another control character.
func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

func (c *compiler) readParams() {
	c.shared = map[string]*sharedParam{}
	for _, part := range c.doc.params {
		if !c.newName(part.name, "a param") {
			continue
		}
		p := &sharedParam{at: part.name.at, part: part, optional: c.optional(part)}
		c.shared[part.name.text] = p
		if part.lookup != nil {
			p.lookup = c.lookup(part)
		}
		if part.lookup != nil && p.optional {
			c.add(part.optional.at, part.name.text, "a param with a lookup is never absent: one that finds nothing is an empty list",
				"remove optional or the lookup")
		}
	}
	for _, part := range c.doc.params {
		if p := c.shared[part.name.text]; p != nil && p.lookup != nil {
			c.checkBy(part)
		}
	}
}

// newName checks the name of a variable, a param or an enumeration.
func (c *compiler) newName(name scalar, what string) bool {
	switch {
	case name.text == idName:
		c.add(name.at, name.text, "the name id is reserved for the row's id", "use another name; {id} needs no declaration")
		return false
	case !isName(name.text):
		c.add(name.at, name.text, what+" cannot have this name", "a name has letters, digits and _, and does not start with a digit")
		return false
	case what != "a var" && c.vars[name.text] != nil:
		c.vars[name.text].used = true
		c.add(name.at, name.text, what+" has the name of a var, in line "+strconv.Itoa(c.vars[name.text].at.line), "rename one of the two")
		return false
	}
	return true
}

func (c *compiler) optional(part paramPart) bool {
	s := part.optional
	if s.given && s.text != "true" && s.text != "false" {
		c.add(s.at, s.text, "optional must be true or false", "write optional: true, or remove it")
	}
	return s.text == "true"
}

func (c *compiler) lookup(part paramPart) *Lookup {
	l := &Lookup{Param: part.name.text, SQL: part.lookup.sql.text}
	if !part.lookup.hasBy {
		c.add(part.lookup.at, "", "the lookup of "+part.name.text+" has no by", "name what it is asked by: by: [id]")
	}
	for _, by := range part.lookup.by {
		if slices.Contains(l.By, by.text) {
			c.add(by.at, by.text, "given twice in by", "remove one of the two")
			continue
		}
		l.By = append(l.By, by.text)
	}
	switch sql := part.lookup.sql; {
	case !part.lookup.hasSQL:
		c.add(part.lookup.at, "", "the lookup of "+part.name.text+" has no sql", cureSQL)
	case sql.given && c.plainText(sql):
		for _, fault := range sqlFaults(sql.text, len(l.By)) {
			c.add(sql.at, fault.text, fault.problem, fault.cure)
		}
	}
	return l
}

// checkBy checks what a lookup is asked by: the id, or params that come with the row.
func (c *compiler) checkBy(part paramPart) {
	for _, by := range part.lookup.by {
		other := c.shared[by.text]
		switch {
		case by.text == idName:
		case c.vars[by.text] != nil:
			c.vars[by.text].used = true
			c.add(by.at, by.text, "a lookup cannot be asked by a var", "name id, or a param that the row gives")
		case by.text == part.name.text:
			c.add(by.at, by.text, "a lookup cannot be asked by what it finds", "name id, or a param that the row gives")
		case other != nil && other.part.lookup != nil:
			c.add(by.at, by.text, "a lookup cannot be asked by what another one finds", "name id, or a param that the row gives")
		case other != nil && other.optional:
			c.add(by.at, by.text, "a lookup cannot be asked by an optional param", "remove optional there, or ask by something else")
		case !isName(by.text):
			c.add(by.at, by.text, "not a name", "name id, or a param that the row gives")
		}
	}
}
