package invalidation

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/sqltext"
)

// A Capture declares which changes of a table become rows of the outbox by triggers, and the
// contents of the rows. The command "unstale capture" creates the triggers.
type Capture struct {
	// Table is the table's name, in the database of the outbox.
	Table  string
	Entity string
	ID     Source
	// Watch are the columns that count: an UPDATE counts if one of them changes. None means all
	// columns of the table.
	Watch  []string
	Params []CaptureParam
	// Insert, Update and Delete are the operations that count.
	Insert, Update, Delete bool
	// IgnoreCascades leaves out rows that foreign keys delete or change, which triggers do not see.
	IgnoreCascades bool
	// Ignored are foreign keys whose cascades are left out, if IgnoreCascades does not leave out all.
	Ignored []IgnoredCascade
	// SkipErrors lets a write succeed if its row cannot be inserted: the rest of the row becomes a
	// dead letter with the reason CaptureFailed. Otherwise the write fails.
	SkipErrors bool
	// IDInPattern is the first pattern of the entity with {id}, or "". A row with the ID "" becomes
	// a dead letter there, and is otherwise one like others: it unlinks keys with an empty part.
	IDInPattern string
	// Line and Column are the place in the map.
	Line, Column int
}

// A CaptureParam is a parameter of the rows.
type CaptureParam struct {
	Name   string
	Source Source
}

// An IgnoredCascade is a foreign key whose effects on a captured table are left out.
type IgnoredCascade struct {
	// Key is the name of the constraint, after "table." if it is not one of the captured table.
	Key string
	// Delete and Update are the events of the key's parent that are left out.
	Delete, Update bool
}

// Way returns the event as a map has it: "ignore delete", "ignore update", or "ignore" for both.
func (i IgnoredCascade) Way() string {
	switch {
	case i.Delete && i.Update:
		return ignoring[0]
	case i.Delete:
		return ignoring[1]
	}
	return ignoring[2]
}

// gives reports whether the rows give a parameter.
func (c *Capture) gives(name string) bool {
	return slices.ContainsFunc(c.Params, func(p CaptureParam) bool { return p.Name == name })
}

// rowMark represents OLD or NEW in an expression.
const rowMark = "{row}"

// A Source is the origin of a value in a trigger: a column, or an SQL expression in which {row}
// represents OLD or NEW, such as BIN_TO_UUID({row}.id).
type Source string

// IsExpression reports whether the source is an expression, and not a column.
func (s Source) IsExpression() bool { return strings.Contains(string(s), rowMark) }

// Of returns the expression for a row, OLD or NEW.
func (s Source) Of(row string) string { return strings.ReplaceAll(string(s), rowMark, row) }

// Captures returns the captures of the map, in file order.
func (m *Map) Captures() []Capture {
	all := slices.Clone(m.captures)
	for i := range all {
		all[i].Watch, all[i].Params, all[i].Ignored = slices.Clone(all[i].Watch), slices.Clone(all[i].Params), slices.Clone(all[i].Ignored)
	}
	return all
}

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
	case part.has.lacks("entity"):
		c.addFault(part.at, part.table.text, "the capture has no entity", "name what its rows are about: entity: product")
	case e == nil && part.entity.given:
		c.addFault(part.entity.at, part.entity.text, "there is no such entity", c.didYouMean(part.entity.text, c.all.entityNames, "the entities are "+quoteList(c.all.entityNames)))
	}
	if part.has.lacks("id") {
		c.addFault(part.at, part.table.text, "the capture has no id", "name the column that has the entity's id: id: product_id")
	}
	one.ID = c.source(part.id)
	for _, s := range part.watch {
		if c.identifier(s, "a column") && slices.Contains(one.Watch, s.text) {
			c.addFault(s.at, s.text, "given twice in watch", "remove one of the two")
		}
		one.Watch = append(one.Watch, s.text)
	}
	for _, p := range part.params {
		if e != nil && !e.entity.declares(p.name.text) {
			c.addFault(p.name.at, p.name.text, "the entity "+e.entity.name+" has no such param",
				c.didYouMean(p.name.text, e.entity.declared, "declare it there, or remove it"))
		}
		one.Params = append(one.Params, CaptureParam{p.name.text, c.source(p.value)})
	}
	if part.cascades.given {
		if one.IgnoreCascades = part.cascades.text == "ignore"; !one.IgnoreCascades {
			c.addFault(part.cascades.at, part.cascades.text, "not a way with cascades", "write ignore, or remove it: then they are covered")
		}
	}
	for _, p := range part.ignored {
		i := slices.Index(ignoring, p.value.text)
		if i < 0 && p.value.given {
			c.addFault(p.value.at, p.value.text, "not a way with the cascades of a key", "write ignore, ignore delete or ignore update, or remove the key: then they are covered")
		}
		one.Ignored = append(one.Ignored, IgnoredCascade{p.name.text, i != 2, i != 1})
	}
	if part.onError.given {
		if one.SkipErrors = part.onError.text == "skip"; !one.SkipErrors && part.onError.text != "fail" {
			c.addFault(part.onError.at, part.onError.text, "not a way with errors", "write skip, or fail, as without it")
		}
	}
	c.operations(part, &one)
	return one
}

// ignoring are the ways with the cascades of a key: all of them, those of deletes, those of updates.
var ignoring = []string{"ignore", "ignore delete", "ignore update"}

func (c *captureReader) operations(part capturePart, one *Capture) {
	if !part.has["on"] {
		return
	}
	named := map[string]*bool{"insert": &one.Insert, "update": &one.Update, "delete": &one.Delete}
	one.Insert, one.Update, one.Delete = false, false, false
	for _, s := range part.on {
		on := named[s.text]
		switch {
		case on == nil:
			c.addFault(s.at, s.text, "not an operation", c.didYouMean(s.text, []string{"insert", "update", "delete"}, "write "+operations))
		case *on:
			c.addFault(s.at, s.text, "given twice in on", "remove one of the two")
		default:
			*on = true
		}
	}
	if len(part.watch) > 0 && !one.Update && (one.Insert || one.Delete) {
		c.addFault(part.watch[0].at, part.watch[0].text, "watch is about UPDATE, which on leaves out", "add update to on, or remove watch")
	}
}

// identifier checks a name of the database.
func (c *captureReader) identifier(s scalar, what string) bool {
	if !s.given || !c.plainText(s) {
		return false
	}
	if s.text == "" || utf8.RuneCountInString(s.text) > maxIdentifier || hasControl(s.text) {
		c.addFault(s.at, s.text, "not the name of "+what, "write a name of at most "+strconv.Itoa(maxIdentifier)+" characters, as the database has it")
		return false
	}
	return true
}

// source checks where a value comes from.
func (c *captureReader) source(s scalar) Source {
	if Source(s.text).IsExpression() {
		if c.plainText(s) && slices.Contains(sqltext.Tokens(s.text), ";") {
			c.addFault(s.at, s.text, "an expression has no semicolon", "remove it")
		}
	} else if s.given {
		c.identifier(s, "a column")
	}
	return Source(s.text)
}

// checkParams reports a capture whose rows the map always refuses: they lack a param that a
// template needs, or give only some of those whose values go together.
func (c *captureReader) checkParams(part capturePart, one *Capture) {
	e := c.all.entities[one.Entity]
	if e == nil || len(c.faults) > 0 {
		return
	}
	row := capturedRow{one, map[*entity]bool{}}
	if param, by := row.lacks(e.entity); param != "" {
		c.all.lookups.later.addFault(part.at, part.table.text, "its rows do not give "+param+", which "+by+" needs: all of them become dead letters",
			"add "+param+" to its params, or make it optional")
	}
}

// A capturedRow is any row of a capture.
type capturedRow struct {
	by   *Capture
	seen map[*entity]bool
}

func (r *capturedRow) gives(name string) bool {
	return name == idName || r.by.gives(name)
}

// lacks returns a param without which the row never expands, and the template that needs it, or "".
func (r *capturedRow) lacks(e *entity) (param, by string) {
	if r.seen[e] {
		return "", ""
	}
	r.seen[e] = true
	for _, t := range e.kinds() {
		if param, by = r.lacking(e, t); param != "" {
			return param, by
		}
	}
	for i := range e.as {
		param, by = r.lacking(e, &e.as[i].id)
		if param == "" && r.makes(e, &e.as[i].id) {
			param, by = r.lacks(e.as[i].target)
		}
		if param != "" {
			break
		}
	}
	return param, by
}

// lacking returns a name of a template that the row lacks, or "", and how to name the template. It
// returns "" too if the row may make nothing of the template.
func (r *capturedRow) lacking(e *entity, t *template) (name, by string) {
	for _, n := range t.slots {
		s, lead := &e.slots[n], &e.slots[e.slots[n].lead]
		group := e.group(s.lead)
		missing := slices.IndexFunc(group, func(n int) bool { return !r.gives(e.slots[n].name) })
		switch {
		case s.each != nil || missing < 0:
		case slices.ContainsFunc(group, func(n int) bool { return r.gives(e.slots[n].name) }):
			name = e.slots[group[missing]].name
		case s.optional || lead.optional:
			return "", ""
		case lead.lookup == nil && lead.fallback == nil && s.fallback == nil:
			name = s.name
		}
	}
	return name, strconv.Quote(t.source) + " of " + e.name
}

// makes reports whether the row makes something of a template for sure.
func (r *capturedRow) makes(e *entity, t *template) bool {
	return !slices.ContainsFunc(t.slots, func(n int) bool {
		return e.slots[n].each == nil && len(e.slots[n].fallback) == 0 && !r.gives(e.slots[n].name)
	})
}
