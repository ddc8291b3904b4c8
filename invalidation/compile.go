package invalidation

import (
	"strconv"
	"strings"
)

// idName is the reserved name of the row's id.
const idName = "id"

// A compiler turns a document into a Map. It reports every fault that it finds; the map is good only if there is none.
type compiler struct {
	*report
	later *report // faults that this release accepts and the next one refuses
	doc   *document
	env   func(string) (string, bool)

	limits   Limits
	vars     map[string]*variable
	each     map[string]*declaredName // of all entities
	shared   map[string]*sharedParam
	leads    map[string]string // of names whose values go along with those of another one: that one
	columns  map[string]int    // of such names: which value of a lookup's row is theirs
	lookups  []writtenLookup
	circles  map[*Lookup]bool // those of which it was reported that they ask each other, or too many others
	entities map[string]*entityCompiler
	order    []*entityCompiler
	names    []string          // of entities, sorted
	visited  []*entityCompiler // in the order in which the search for cycles ends: none behind what expands as it
}

// A writtenLookup is a lookup with the name under which it stands.
type writtenLookup struct {
	scalar
	lookup *Lookup
}

// A variable is an entry of vars.
type variable struct {
	at    place
	value string
	list  []string // of one that has several values
	used  bool
}

func (c *compiler) compile() *Map {
	m := &Map{}
	c.circles = map[*Lookup]bool{}
	c.version()
	c.readVars()
	m.channel, m.format = c.publish()
	m.lease = c.lease()
	m.limits = c.readLimits()
	c.limits = m.limits
	c.readShared()
	c.readParams()
	c.readEntities()
	c.checkUnused()
	c.checkNames()
	m.names = c.names
	m.entities = make(map[string]*entity, len(c.entities))
	for name, e := range c.entities {
		m.entities[name] = e.entity
	}
	for _, w := range c.lookups {
		m.ranks = max(m.ranks, 1+w.lookup.Rank)
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
