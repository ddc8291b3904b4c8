package invalidation

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/sqltext"
)

// maxIdentifier is how many characters MySQL allows for the name of a table or a column.
const maxIdentifier = 64

const (
	exampleCapture = "{products: {entity: product, id: id}}"
	operations     = "insert, update or delete"
)

// A captureReader reads the section capture.
type captureReader struct {
	*scalars
	all *compiler
}

// readCaptures checks the section capture and returns its entries. Checks that need a schema are
// made elsewhere.
func (c *captureReader) readCaptures(parts []capturePart) (all []Capture) {
	for _, part := range parts {
		all = append(all, c.capture(part))
	}
	for i := range all {
		c.checkParams(parts[i], &all[i])
	}
	return all
}

func (c *captureReader) capture(part capturePart) Capture {
	one := Capture{
		Table: part.table.text, Entity: part.entity.text, Line: part.at.line, Column: part.at.column,
		Insert: true, Update: true, Delete: true,
	}
	c.identifier(part.table, "a table")
	e := c.all.entities[part.entity.text]
	switch {
	case !part.hasEntity:
		c.add(part.at, part.table.text, "the capture has no entity", "name what its rows are about: entity: product")
	case e == nil && part.entity.given:
		c.add(part.entity.at, part.entity.text, "there is no such entity", c.didYouMean(part.entity.text, c.all.entityNames, "the entities are "+quoteList(c.all.entityNames)))
	}
	if !part.hasID {
		c.add(part.at, part.table.text, "the capture has no id", "name the column that has the entity's id: id: product_id")
	}
	one.ID = c.source(part.id)
	for _, s := range part.watch {
		if c.identifier(s, "a column") && slices.Contains(one.Watch, s.text) {
			c.add(s.at, s.text, "given twice in watch", "remove one of the two")
		}
		one.Watch = append(one.Watch, s.text)
	}
	for _, p := range part.params {
		if e != nil {
			declared := e.reachable().declared
			if _, known := slices.BinarySearch(declared, p.name.text); !known {
				c.add(p.name.at, p.name.text, "the entity "+e.part.name.text+" has no such param",
					c.didYouMean(p.name.text, declared, "declare it there, or remove it"))
			}
		}
		one.Params = append(one.Params, CaptureParam{p.name.text, c.source(p.value)})
	}
	if part.cascades.given {
		if one.IgnoreCascades = part.cascades.text == "ignore"; !one.IgnoreCascades {
			c.add(part.cascades.at, part.cascades.text, "not a way with cascades", "write ignore, or remove it: then they are covered")
		}
	}
	if part.onError.given {
		if one.SkipErrors = part.onError.text == "skip"; !one.SkipErrors && part.onError.text != "fail" {
			c.add(part.onError.at, part.onError.text, "not a way with errors", "write skip, or fail, as without it")
		}
	}
	c.operations(part, &one)
	return one
}

func (c *captureReader) operations(part capturePart, one *Capture) {
	if !part.hasOn {
		return
	}
	named := map[string]*bool{"insert": &one.Insert, "update": &one.Update, "delete": &one.Delete}
	one.Insert, one.Update, one.Delete = false, false, false
	for _, s := range part.on {
		on := named[s.text]
		switch {
		case on == nil:
			c.add(s.at, s.text, "not an operation", c.didYouMean(s.text, []string{"insert", "update", "delete"}, "write "+operations))
		case *on:
			c.add(s.at, s.text, "given twice in on", "remove one of the two")
		default:
			*on = true
		}
	}
	if len(part.watch) > 0 && !one.Update && (one.Insert || one.Delete) {
		c.add(part.watch[0].at, part.watch[0].text, "watch is about UPDATE, which on leaves out", "add update to on, or remove watch")
	}
}

// identifier checks a name of the database.
func (c *captureReader) identifier(s scalar, what string) bool {
	if !s.given || !c.plainText(s) {
		return false
	}
	if s.text == "" || utf8.RuneCountInString(s.text) > maxIdentifier || hasControl(s.text) {
		c.add(s.at, s.text, "not the name of "+what, "write a name of at most "+strconv.Itoa(maxIdentifier)+" characters, as the database has it")
		return false
	}
	return true
}

// source checks where a value comes from.
func (c *captureReader) source(s scalar) Source {
	if Source(s.text).IsExpression() {
		if c.plainText(s) && slices.Contains(sqltext.Tokens(s.text), ";") {
			c.add(s.at, s.text, "an expression has no semicolon", "remove it")
		}
	} else if s.given {
		c.identifier(s, "a column")
	}
	return Source(s.text)
}
