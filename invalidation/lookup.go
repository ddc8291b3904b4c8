package invalidation

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/sqltext"
)

// A Lookup finds, with a query, values of a parameter that the row does not give, or more values
// than it gives. It runs after the commit, so it sees the state after the change.
type Lookup struct {
	// Param is the parameter that it finds.
	Param string
	// With are the parameters whose values it finds too, each with one of Param.
	With []string
	// By names the values that the query gets: id, or parameters, given or looked up. Param itself
	// means the values that the row gives.
	By []string
	// SQL is one SELECT with exactly one ?, for the list of by-values (tuples if By has several
	// names). It selects the by-columns, in the order of By, then the value, and then the values of
	// With, in its order.
	SQL string
	// Always makes it run even if the row gives Param: its results are added.
	Always bool
	// Single reports that SQL is asked for one ID at a time, since it is wrong for several together
	// or not proven to be right. SingleReason is why, or "".
	Single       bool
	SingleReason string
	// Rank is how many lookups come before it: one is asked when those of lower ranks are answered,
	// and then all that a batch of rows asks it is known.
	Rank int
	// Line and Column are the place of the lookup's name in the map.
	Line, Column int
}

// Values returns the number of parameters that it finds values of.
func (l *Lookup) Values() int { return 1 + len(l.With) }

// asksItself reports whether it is asked by the values that it adds to.
func (l *Lookup) asksItself() bool { return slices.Contains(l.By, l.Param) }

// isAsked reports whether it is asked, where its values are given or not.
func (l *Lookup) isAsked(given bool) bool {
	if given {
		return l.Always
	}
	return !l.asksItself()
}

// A Need is one question to a Lookup. By has one value for each name of Lookup.By. Lookups belong
// to the Map that gave them: answers to one map's needs do not answer another's.
type Need struct {
	Lookup *Lookup
	By     []string
}

// Answers hold what lookups found. The zero value is ready. Not safe for concurrent use with Put.
type Answers struct {
	found map[question][]string
}

// A question is a Need in a form that can be compared.
type question struct {
	lookup *Lookup
	by     string
}

func (n Need) question() question { return question{n.Lookup, n.Key()} }

// Put records what answers n: of each row that was found the value of Lookup.Param, and behind it
// those of Lookup.With. None means: asked, and nothing found.
func (a *Answers) Put(n Need, values []string) {
	if a.found == nil {
		a.found = map[question][]string{}
	}
	a.found[n.question()] = values
}

// Get returns the values that were put for n, and whether there are any. A nil *Answers has none.
func (a *Answers) Get(n Need) ([]string, bool) {
	if a == nil {
		return nil, false
	}
	values, ok := a.found[n.question()]
	return values, ok
}

// Key returns a text that tells n from all other needs of its lookup: with their lengths, different
// lists never become the same text.
func (n Need) Key() string {
	if len(n.By) == 1 {
		return n.By[0]
	}
	size := 0
	for _, v := range n.By {
		size += binary.MaxVarintLen32 + len(v)
	}
	var key strings.Builder // values may be large: one allocation
	key.Grow(size)
	for _, v := range n.By {
		var length [binary.MaxVarintLen64]byte
		key.Write(binary.AppendUvarint(length[:0], uint64(len(v))))
		key.WriteString(v)
	}
	return key.String()
}

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

// readLookup reads the lookup of a param, which finds values for others too.
func (c *lookupReader) readLookup(part paramPart, with []string) *Lookup {
	l := &Lookup{Line: part.name.at.line, Column: part.name.at.column, Param: part.name.text, With: with, SQL: part.lookup.sql.text, Always: c.isTrue(part.lookup.always, "always")}
	if part.lookup.has.lacks("by") {
		c.addFault(part.lookup.at, "", "the lookup of "+part.name.text+" has no by", "name what it is asked by: by: [id]")
	}
	for _, by := range part.lookup.by {
		if slices.Contains(l.By, by.text) {
			c.addFault(by.at, by.text, "given twice in by", "remove one of the two")
			continue
		}
		l.By = append(l.By, by.text)
		c.checkBy(l, by)
	}
	switch sql := part.lookup.sql; {
	case part.lookup.has.lacks("sql"):
		c.addFault(part.lookup.at, "", "the lookup of "+part.name.text+" has no sql", cureSQL)
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
		c.addFault(sql.at, fault.text, fault.problem, fault.cure)
	}
	for _, fault := range batch {
		l.Single, l.SingleReason = true, "its SQL has a fault"
		c.later.addFault(sql.at, fault.text, fault.problem, fault.cure)
	}
	if why := togetherFault(sqltext.Tokens(sql.text), by); why != "" && by > 0 && !l.Single {
		l.Single, l.SingleReason = true, why
	}
	for _, name := range namesInSQL(sql.text) {
		c.later.addFault(sql.at, "{"+name+"}", "the SQL of a lookup is not a template: the server gets {"+name+"} as it is written", c.cureName(l, name))
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
		c.addFault(by.at, by.text, "a lookup cannot be asked by "+what, "name id, or a param")
	case by.text == l.Param && !l.Always:
		c.addFault(by.at, by.text, "a lookup that is asked by what the row gives for its own param adds to that", "write always: true beside by, or ask by something else")
	case by.text == l.Param:
	case slices.Contains(l.With, by.text):
		c.addFault(by.at, by.text, "a lookup cannot be asked by what it finds", "name id, or another param")
	case other != nil && other.optional, c.leads[by.text] != "" && c.params[c.leads[by.text]].optional:
		c.addFault(by.at, by.text, "a lookup cannot be asked by an optional param", "remove optional there, or ask by something else")
	case !isName(by.text):
		c.addFault(by.at, by.text, "not a name", "name id, or a param")
	}
}

// maxRank is how many lookups can depend on each other in a chain: a row waits for as many
// sequential queries.
const maxRank = 8

// rankLookups finds how many lookups come before each one: those that it is asked by, and, where
// that is the id of an entity, those that find it.
func (c *compiler) rankLookups() {
	arrives := map[*entity]int{} // how many lookups come before the id of an entity is known
	for changed := true; changed; {
		changed = false                                // each time at least one rank is final
		for _, e := range slices.Backward(c.visited) { // none before what expands as it
			known := func(slots []int, but int) int {
				after := 0
				for _, n := range slots {
					if n == idSlot {
						after = max(after, arrives[e.entity])
					} else if l := e.entity.lookupOf(n); l != nil && n != but {
						after = max(after, l.Rank+1)
					}
				}
				return after
			}
			for n, s := range e.entity.slots {
				if s.lookup == nil {
					continue
				}
				if after := known(s.by.slots, n); after > s.lookup.Rank {
					s.lookup.Rank, changed = after, true
				}
				if s.lookup.Rank > maxRank {
					c.addEndless(s.lookup)
					return
				}
			}
			for _, a := range e.entity.as {
				if after := known(a.id.slots, noSlot); after > arrives[a.target] {
					arrives[a.target], changed = after, true
				}
			}
		}
	}
}

func (c *compiler) addEndless(l *Lookup) {
	for _, w := range c.lookups.all {
		if w.lookup == l {
			c.addFault(w.at, w.text, "more than "+strconv.Itoa(maxRank)+" lookups follow each other up to this one, or it leads to itself over ids that are looked up",
				"give an entity on the way a lookup of its own, or join the tables in one SELECT")
		}
	}
}
