package invalidation

import (
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
			c.add(value.at, value.text, "the same value twice in "+v.name.text, "remove one of the two")
		case len(all) == maxEach:
			c.add(value.at, value.text, "more than "+strconv.Itoa(maxEach)+" values", "use a pattern, or an index set")
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
		c.add(value.at, value.text, "the var "+name+" is empty", "give it a value, or remove it and its uses")
	case hasControl(text):
		c.add(value.at, value.text, "the var "+name+" has a line break or another control character", "remove it from the value")
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
			c.add(one.at, one.text, "one_of lists texts that are not empty, without ${...} and control characters", "correct it, or remove it")
		case allowed[one.text]:
			c.add(one.at, one.text, "the same value twice in one_of", "remove one of the two")
		default:
			allowed[one.text], list = true, append(list, one.text)
		}
	}
	s := p.from
	if s.given && !isName(s.text) {
		c.add(s.at, s.text, "not an environment variable", "write its name alone, such as from: APP_ENV")
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
		c.add(s.at, s.text, "the environment variable "+s.text+" is not set or is empty, and the var "+name+" requires it", cure)
	case len(list) > 0 && !allowed[value]:
		c.add(s.at, s.text, "the environment variable "+s.text+" is "+strconv.Quote(shorten(value))+", which one_of of the var "+name+" does not allow", cure)
	case hasControl(value):
		c.add(s.at, s.text, "the environment variable "+s.text+" has a line break or another control character", "remove it from the value")
	}
	return value
}
