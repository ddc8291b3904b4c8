package invalidation

import (
	"maps"
	"slices"
	"strconv"

	"github.com/unstale/unstale/internal/near"
)

// idName is the reserved name of the row's id.
const idName = "id"

// globals are the names that all entities may use.
type globals struct {
	*scalars
	doc *document

	vars    map[string]*variable
	each    map[string]*declaredName
	params  map[string]*sharedParam
	leads   map[string]string // of names whose values go along with those of another one: that one
	columns map[string]int    // of such names: which value of a lookup's row is theirs
}

// newName checks the name of a variable, a param or an enumeration.
func (c *globals) newName(name scalar, what string) bool {
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

// readEach reads the enumerations that every entity may use.
func (c *globals) readEach() {
	c.each = map[string]*declaredName{}
	for _, part := range c.doc.each {
		if c.newName(part.name, "an enumeration") {
			c.each[part.name.text] = &declaredName{at: part.name.at, values: c.eachValues(part)}
		}
	}
}

// valuesOf returns the values of a var that a default names.
func (c *globals) valuesOf(s scalar, name string) []string {
	v := c.vars[name]
	if v == nil {
		like := c.nearest(name, slices.Sorted(maps.Keys(c.vars)))
		if v := c.vars[like]; v != nil {
			v.used = true
		}
		c.add(s.at, s.text, "a default can be that of a var, and there is no var "+name, near.Ask(like, "declare it under vars"))
		return nil
	}
	if v.used = true; v.list != nil {
		return v.list
	}
	return []string{v.value}
}
