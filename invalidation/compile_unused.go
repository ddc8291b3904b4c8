package invalidation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/protocol"
)

// checkUnused reports names that are declared and used nowhere: most often a spelling mistake.
func (c *compiler) checkUnused() {
	unclear := false
	for _, e := range c.order {
		unclear = unclear || e.unclear || !e.part.readable
		for _, names := range []struct {
			what     string
			declared map[string]*declaredName
		}{{"param", e.params}, {"enumeration", e.each}} {
			for name, d := range names.declared {
				if !d.used && !e.unclear {
					c.add(d.at, name, "the "+names.what+" is used nowhere in the entity "+e.entity.name, "use {"+name+"} in a template, or remove it")
				}
			}
		}
	}
	if unclear {
		return
	}
	for name, v := range c.vars {
		if !v.used {
			c.add(v.at, name, "the var is used nowhere", "use {"+name+"} in a template, or remove it")
		}
	}
	for name, each := range c.each {
		if !each.used {
			c.add(each.at, name, "the enumeration is used nowhere", "use {"+name+"} in a template, or remove it")
		}
	}
	for name, p := range c.params {
		if !p.used {
			c.add(p.at, name, "no entity names this param", "add "+name+" to the params of an entity, or remove it")
			continue
		}
		for _, other := range p.part.with {
			if c.leads[other.text] == name && !slices.ContainsFunc(c.order, func(e *entityCompiler) bool { return e.params[other.text] != nil }) {
				c.add(other.at, other.text, "no entity names this param", "add "+other.text+" to the params of an entity, or remove it")
			}
		}
	}
}

// checkNames reports index sets whose name could also be that of a key or a tag version: unlinking
// the key would lose the members.
func (c *compiler) checkNames() {
	keys, tags := map[string]writtenTemplate{}, map[string]writtenTemplate{}
	for _, e := range c.order {
		for _, w := range e.written {
			switch w.list {
			case "keys":
				keys[w.template.shape()] = w
			case "tags":
				keys[w.template.shape()] = w
				tags[strings.TrimPrefix(w.template.shape(), protocol.StampPrefix)] = w
			}
		}
	}
	for _, e := range c.order {
		for _, w := range e.written {
			if w.list != "sets" {
				continue
			}
			if key, clash := keys[w.template.shape()]; clash {
				c.add(w.at, w.text, "an index set with the name of a key, "+key.list+" in line "+strconv.Itoa(key.at.line), "use another name for one of the two")
			} else if tag, clash := tags[w.template.shape()]; clash {
				c.add(w.at, w.text, "an index set with the name of a tag, in line "+strconv.Itoa(tag.at.line), "use another name for one of the two, or only one of the two")
			}
		}
	}
}
