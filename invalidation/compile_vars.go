package invalidation

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// A variable is an entry of vars.
type variable struct {
	at    place
	value string
	list  []string // of one that has several values
	used  bool
}

// A varReader reads the section vars.
type varReader struct{ *globals }

func (c *varReader) readVars() {
	c.vars = map[string]*variable{}
	for _, v := range c.doc.vars {
		if !c.newName(v.name, "a var") {
			continue
		}
		resolved := &variable{at: v.name.at}
		c.vars[v.name.text] = resolved
		switch {
		case v.list:
			resolved.list = c.readListVar(v)
		case v.fromEnv != nil:
			resolved.value = c.readFromEnv(v.name.text, v.fromEnv)
		default:
			resolved.value, _ = c.readVar(v.name.text, v.values[0])
		}
	}
}

// readListVar resolves a list, which is never empty.
func (c *varReader) readListVar(v varPart) []string {
	var all []string
	seen := map[string]bool{}
	for _, value := range v.values {
		text, ok := c.readVar(v.name.text, value)
		switch {
		case !ok:
		case seen[text]:
			c.addFault(value.at, value.text, "the same value twice in "+v.name.text, "remove one of the two")
		case len(all) == maxEach:
			c.addFault(value.at, value.text, "more than "+strconv.Itoa(maxEach)+" values", "use a pattern, or an index set")
			return all
		default:
			seen[text] = true
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return []string{""} // reported
	}
	return all
}

// readVar resolves one value of a var.
func (c *varReader) readVar(name string, value scalar) (string, bool) {
	if !value.given {
		return "", false
	}
	before := len(c.faults)
	text := c.interpolate(value)
	switch {
	case len(c.faults) > before:
	case text == "":
		c.addFault(value.at, value.text, "the var "+name+" is empty", "give it a value, or remove it and its uses")
	case hasControl(text):
		c.addFault(value.at, value.text, "the var "+name+" has a line break or another control character", "remove it from the value")
	}
	return text, len(c.faults) == before
}

// readFromEnv returns the value of a required environment variable.
func (c *varReader) readFromEnv(name string, p *fromEnvPart) string {
	before := len(c.faults)
	allowed := map[string]bool{}
	var list []string
	for _, one := range p.oneOf {
		switch {
		case one.text == "" || hasControl(one.text) || strings.Contains(one.text, "${"):
			c.addFault(one.at, one.text, "one_of lists texts that are not empty, without ${...} and control characters", "correct it, or remove it")
		case allowed[one.text]:
			c.addFault(one.at, one.text, "the same value twice in one_of", "remove one of the two")
		default:
			allowed[one.text], list = true, append(list, one.text)
		}
	}
	s := p.from
	if s.given && !isName(s.text) {
		c.addFault(s.at, s.text, "not an environment variable", "write its name alone, such as from: APP_ENV")
	}
	if len(c.faults) > before || !s.given {
		return ""
	}
	cure := "set " + s.text
	if len(list) > 0 {
		cure += " to one of " + quoteList(list)
	}
	value, _ := c.env(s.text)
	if value == "" && c.anyEnv {
		if value = s.text; len(list) > 0 {
			value = list[0]
		}
	}
	switch {
	case value == "":
		c.addFault(s.at, s.text, "the environment variable "+s.text+" is not set or is empty, and the var "+name+" requires it", cure)
	case len(list) > 0 && !allowed[value]:
		c.addFault(s.at, s.text, "the environment variable "+s.text+" is "+strconv.Quote(shorten(value))+", which one_of of the var "+name+" does not allow", cure)
	case hasControl(value):
		c.addFault(s.at, s.text, "the environment variable "+s.text+" has a line break or another control character", "remove it from the value")
	}
	return value
}

// A ValueType is the type that generated code gives to the values of a name. Values of rows are
// text; workers refuse only an ID that is a float and should be an int: see [IsFloat].
type ValueType string

// The types of values. Each has one text for a value, so a reader and a writer that use generated
// code cannot differ in it, as in 42 and 042.
const (
	TypeText ValueType = "text" // any text, as it is
	TypeInt  ValueType = "int"  // a signed number of 64 bits, in decimal
	TypeUUID ValueType = "uuid" // 16 bytes, as 8-4-4-4-12 hex digits in lower case
)

// floatText describes a value of a float where the map has the type int.
const floatText = "%q is a float, and the map has the type int: a driver sent a number, which MySQL wrote as DOUBLE, so no key has this text; " +
	"insert IDs as text: docs/adopting.md#ids-from-drivers"

// IsFloat reports whether a text is a number in the notation of a float, such as 42.0 or 4.2e1, as
// MySQL and drivers write a number that is not an integer to them.
func IsFloat(text string) bool {
	if !strings.ContainsAny(text, ".eE") || !strings.ContainsAny(text[:1], "-.0123456789") {
		return false
	}
	_, err := strconv.ParseFloat(text, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

const exampleTypes = "{product_id: int}"

// A typeReader reads the section types.
type typeReader struct{ all *compiler }

// readTypes reads the section types.
func (r *typeReader) readTypes() map[string]ValueType {
	c := r.all
	types := map[string]ValueType{}
	known := r.names()
	for _, part := range c.doc.types {
		name, t := part.name, ValueType(part.value.text)
		switch {
		case !part.value.given:
		case !slices.Contains(known, name.text):
			c.addFault(name.at, name.text, "no read and no entity has this name",
				c.didYouMean(name.text, known, "name a hole, a param, or ENTITY_id for the IDs of an entity"))
		case t != TypeText && t != TypeInt && t != TypeUUID:
			c.addFault(part.value.at, part.value.text, "there is no such type", "write text, int or uuid")
		default:
			types[name.text] = t
		}
	}
	for i := range c.reads {
		r.checkHoles(&c.reads[i], types)
	}
	return types
}

// names returns the names that can have a type, sorted.
func (r *typeReader) names() (names []string) {
	for _, e := range r.all.order {
		names = append(names, e.entity.name+"_id")
		names = append(names, e.entity.declared...)
	}
	for i := range r.all.reads {
		for _, h := range r.all.reads[i].Holes {
			names = append(names, h.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkHoles gives each hole of a read its type, and checks its declared values.
func (r *typeReader) checkHoles(read *compiledRead, types map[string]ValueType) {
	c, at := r.all, place{read.Line, read.Column}
	for i := range read.Holes {
		h := &read.Holes[i]
		own, ofEntity := types[h.Name], types[h.Entity+"_id"]
		h.Type = cmp.Or(own, ofEntity, TypeText)
		if own != "" && ofEntity != "" && own != ofEntity {
			c.addFault(at, h.Name, "the hole has the type "+string(own)+", and the IDs of "+h.Entity+" have the type "+string(ofEntity), "give both the same type")
		}
		for _, v := range h.Values {
			if !h.Type.has(v) {
				c.addFault(at, h.Name, strconv.Quote(v)+" is a value of the hole, which has the type "+string(h.Type), "correct each, or the type")
				break
			}
		}
	}
}

// has reports whether text is the text of a value of the type.
func (t ValueType) has(text string) bool {
	switch t {
	case TypeInt:
		n, err := strconv.ParseInt(text, 10, 64)
		return err == nil && strconv.FormatInt(n, 10) == text
	case TypeUUID:
		return len(text) == 36 && strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef-", r) }) < 0 &&
			text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' && strings.Count(text, "-") == 4
	}
	return true
}
