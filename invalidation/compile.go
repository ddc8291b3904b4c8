package invalidation

// A compiler turns a document into a Map. It reports every fault that it finds; the map is good
// only if there is none.
type compiler struct {
	*globals
	lookups *lookupReader

	limits      Limits
	entities    map[string]*entityCompiler
	order       []*entityCompiler
	entityNames []string // sorted
	reads       []compiledRead
	// in the order in which the search for cycles ends: each before those that expand as it
	visited []*entityCompiler
}

// newCompiler returns the compiler of a document. later gets the faults that this release accepts
// and the next one refuses.
func newCompiler(doc *document, scalars *scalars, later *report) *compiler {
	g := &globals{scalars: scalars, doc: doc}
	return &compiler{globals: g, lookups: &lookupReader{globals: g, later: later, circles: map[*Lookup]bool{}}}
}

func (c *compiler) compile() *Map {
	m := &Map{}
	read := settings{c.scalars, c.doc}
	read.version()
	(&varReader{c.globals}).readVars()
	m.channel, m.format = read.publish()
	m.lease = read.lease()
	read.nameAdvice(c.vars)
	m.limits = read.limits()
	c.limits = m.limits
	c.readEach()
	(&paramReader{c.globals, c.lookups}).readParams()
	c.readEntities()
	c.checkEverything()
	c.reads = (&readReader{c.globals, c}).readReads()
	types := (&typeReader{c}).readTypes()
	c.checkUnused()
	c.checkNames()
	m.names, m.reads = c.entityNames, ReadSection{vars: c.usedByReads(), types: types}
	m.entities = map[string]*entity{KeyEntity: keyEntity, PatternEntity: patternEntity}
	for name, e := range c.entities {
		m.entities[name] = e.entity
		e.entity.intID = types[name+"_id"] == TypeInt
	}
	for _, w := range c.lookups.all {
		m.ranks = max(m.ranks, 1+w.lookup.Rank)
	}
	m.captures = (&captureReader{c.scalars, c}).readCaptures(c.doc.captures)
	for i := range m.captures {
		if e := m.entities[m.captures[i].Entity]; e != nil {
			e.captured, m.captures[i].IDInPattern = true, e.idInPattern()
		}
	}
	for i := range c.reads {
		m.reads.all = append(m.reads.all, c.reads[i].Read)
		m.reads.names = append(m.reads.names, c.readTemplates(&c.reads[i])...)
	}
	return m
}
