package invalidation

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/protocol"
)

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

// Defaults of a map.
const (
	defaultLease         = 10 * time.Second
	defaultParamsBytes   = 64 << 10
	defaultKeysPerRow    = 10_000
	defaultPatternPrefix = 8
)

// Limits of a map.
const (
	maxLease         = time.Hour
	maxHold          = time.Hour
	maxRepeat        = 24 * time.Hour
	maxRepeats       = 10
	maxParamsBytes   = 2 << 20
	maxKeysPerRow    = 50_000
	maxPatternPrefix = 1024
	maxChannel       = 255
)

// settings read what stands at the top of a map.
type settings struct {
	*scalars
	doc *document
}

func (c settings) version() {
	v := c.doc.version
	switch {
	case v.given && v.text != "1":
		c.addFault(v.at, v.text, "unknown version of the map's grammar", "write version: 1")
	case c.doc.has.lacks("version"):
		c.addFault(c.doc.at, "", "version is missing", "write version: 1 in the first line")
	}
}

func (c settings) publish() (channel string, format protocol.Format) {
	channel, format = protocol.DefaultChannel, protocol.FormatEvent
	if s := c.doc.publish.channel; s.given && c.plainText(s) {
		channel = s.text
		if s.text == "" || len(s.text) > maxChannel || hasControl(s.text) || strings.ContainsAny(s.text, "{}*?[] ") {
			c.addFault(s.at, s.text, "not a name for a channel: it is taken as it is written, without variables or wildcards",
				`write a plain name such as "cache:invalidate"`)
		}
	}
	if s := c.doc.publish.format; s.given && c.plainText(s) {
		format = protocol.Format(s.text)
		if format != protocol.FormatEvent && format != protocol.FormatArray {
			c.addFault(s.at, s.text, "unknown format", c.didYouMean(s.text, []string{"event", "array"}, "write event or array"))
		}
	}
	return channel, format
}

func (c settings) lease() time.Duration {
	if s := c.doc.lease; s.given {
		return c.duration(s, "lease", maxLease)
	}
	return defaultLease
}

func (c settings) nameAdvice(vars map[string]*variable) {
	s := c.doc.nameAdvice
	if !s.given || s.text == "on" || s.text == "off" {
		return
	}
	if !strings.Contains(s.text, "{") {
		c.addFault(s.at, s.text, "name_advice must be on, off, or the order of a name's parts", "write name_advice: off, or "+exampleNameGrammar)
	} else if _, problem := parseNameGrammar(s.text, vars); problem != "" {
		c.addFault(s.at, s.text, problem, "write vars and text first, then kinds, then {id} and {sub}, such as "+exampleNameGrammar)
	}
}

func (c settings) limits() Limits {
	part := c.doc.limits
	return Limits{
		ParamsBytes:   c.size(part.params),
		KeysPerRow:    c.number(part.keysPerRow, "keys_per_row", defaultKeysPerRow, maxKeysPerRow),
		PatternPrefix: c.number(part.patternPrefix, "pattern_prefix", defaultPatternPrefix, maxPatternPrefix),
	}
}

func (c settings) number(s scalar, name string, otherwise, most int) int {
	if !s.given || !c.plainText(s) {
		return otherwise
	}
	n, ok := wholeNumber(s.text, most)
	if !ok || n < 1 {
		c.addFault(s.at, s.text, name+" must be a whole number from 1 to "+strconv.Itoa(most), "write a number in that range, such as "+strconv.Itoa(otherwise))
		return otherwise
	}
	return n
}

// size reads a number of bytes, with or without a unit.
func (c settings) size(s scalar) int {
	if !s.given || !c.plainText(s) {
		return defaultParamsBytes
	}
	digits, unit := s.text, 1
	for suffix, factor := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if text, ok := strings.CutSuffix(s.text, suffix); ok {
			digits, unit = strings.TrimRight(text, " "), factor
		}
	}
	n, ok := wholeNumber(digits, math.MaxInt32)
	switch {
	case !ok:
		c.addFault(s.at, s.text, "params is not a size", "write a number of bytes, or one with KiB or MiB, such as 64KiB")
	case n < 1 || n > maxParamsBytes/unit:
		c.addFault(s.at, s.text, "params must be from 1 byte to 2MiB", "write a size in that range, such as 64KiB")
	default:
		return n * unit
	}
	return defaultParamsBytes
}

// wholeNumber reads decimal digits without sign or leading zero.
func wholeNumber(text string, most int) (int, bool) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most || strconv.Itoa(n) != text {
		return 0, false
	}
	return n, true
}

// separators separate the parts of a name.
const separators = ":/.-_|#,;@~"

// splitPrefix splits a template behind the prefix that all names of an application can have: vars
// and separators, perhaps after one constant word.
func (c *globals) splitPrefix(segments []Segment) (prefix, rest string, constant bool) {
	var front, back strings.Builder
	for _, s := range segments {
		text := s.Text
		switch {
		case back.Len() == 0 && c.vars[s.Name] != nil:
			front.WriteString("{" + s.Name + "}")
			continue
		case s.Name != "":
			text = "{" + s.Name + "}"
		case back.Len() == 0:
			text = strings.TrimLeft(text, separators)
			if end := strings.IndexAny(text, separators); front.Len() == 0 && end > 0 && !strings.ContainsAny(text[:end], `*?\`) {
				constant = true
				text = strings.TrimLeft(text[end:], separators)
			}
			front.WriteString(strings.TrimSuffix(s.Text, text))
		}
		back.WriteString(text)
	}
	return front.String(), back.String(), constant
}

// A prefixUse is the use of a prefix by the keys and patterns of a map.
type prefixUse struct {
	count    int
	constant bool
	entities distinct
	words    distinct // behind it
}

// isShared reports whether a prefix is that of an application. A constant word can also be the name
// of a thing.
func (u *prefixUse) isShared() bool { return !u.constant || u.entities.several && u.words.several }

// distinct counts different texts, to two.
type distinct struct {
	first   string
	several bool
}

func (d *distinct) see(text string) {
	d.several = d.several || d.first != "" && text != "" && text != d.first
	if d.first == "" {
		d.first = text
	}
}

// usePrefix counts the prefix of a template of an entity.
func (c *globals) usePrefix(uses map[string]*prefixUse, entity string, segments []Segment) (prefix string) {
	prefix, rest, constant := c.splitPrefix(segments)
	u := uses[prefix]
	if u == nil {
		u = &prefixUse{constant: constant}
		uses[prefix] = u
	}
	u.count++
	u.entities.see(entity)
	word, _, _ := strings.Cut(rest, "{")
	if end := strings.IndexAny(word, separators+"*?"); end >= 0 {
		word = word[:end]
	}
	u.words.see(word)
	return prefix
}

// checkEverything reports patterns that match all keys of the application in entities that do not
// say so.
func (c *compiler) checkEverything() {
	type pattern struct {
		writtenTemplate
		of       *entityCompiler
		prefix   string
		constant bool
	}
	var wide []pattern
	uses, total := map[string]*prefixUse{}, 0
	for _, e := range c.order {
		for _, w := range e.written {
			if w.list != "keys" && w.list != "patterns" {
				continue
			}
			prefix, rest, constant := c.splitPrefix(w.segments)
			if w.list == "patterns" && strings.Contains(rest, "*") && strings.Trim(rest, "*?"+separators) == "" {
				wide = append(wide, pattern{w, e, prefix, constant})
				continue
			}
			c.usePrefix(uses, e.part.name.text, w.segments)
			total++
		}
	}
	found := map[*entityCompiler]bool{}
	for _, p := range wide {
		found[p.of] = true
		u := uses[p.prefix]
		if (!p.constant || u != nil && u.count == total && u.isShared()) && p.of.part.everything.text != "true" {
			c.lookups.later.addFault(p.at, p.text, "the pattern matches all keys of the application: its literal text is only their prefix "+p.prefix,
				"write more literal text, or everything: true in the entity "+p.of.entity.name)
		}
	}
	for _, e := range c.order {
		if s := e.part.everything; c.isTrue(s, "everything") && !found[e] && !e.unclear {
			c.addFault(s.at, "everything", "no pattern of the entity "+e.entity.name+" matches all keys of the application", "remove everything")
		}
	}
}

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
		c.addFault(name.at, name.text, "the name id is reserved for the row's id", "use another name; {id} needs no declaration")
		return false
	case !isName(name.text):
		c.addFault(name.at, name.text, what+" cannot have this name", "a name has letters, digits and _, and does not start with a digit")
		return false
	case what != "a var" && c.vars[name.text] != nil:
		c.vars[name.text].used = true
		c.addFault(name.at, name.text, what+" has the name of a var, in line "+strconv.Itoa(c.vars[name.text].at.line), "rename one of the two")
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
		c.addFault(s.at, s.text, "a default can be that of a var, and there is no var "+name, near.Ask(like, "declare it under vars"))
		return nil
	}
	if v.used = true; v.list != nil {
		return v.list
	}
	return []string{v.value}
}

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
					c.addFault(d.at, name, "the "+names.what+" is used nowhere in the entity "+e.entity.name, "use {"+name+"} in a template, or remove it")
				}
			}
		}
	}
	if unclear {
		return
	}
	for name, v := range c.vars {
		if !v.used {
			c.addFault(v.at, name, "the var is used nowhere", "use {"+name+"} in a template, or remove it")
		}
	}
	for name, each := range c.each {
		if !each.used {
			c.addFault(each.at, name, "the enumeration is used nowhere", "use {"+name+"} in a template, or remove it")
		}
	}
	for name, p := range c.params {
		if !p.used {
			c.addFault(p.at, name, "no entity names this param", "add "+name+" to the params of an entity, or remove it")
			continue
		}
		for _, other := range p.part.with {
			if c.leads[other.text] == name && !slices.ContainsFunc(c.order, func(e *entityCompiler) bool { return e.params[other.text] != nil }) {
				c.addFault(other.at, other.text, "no entity names this param", "add "+other.text+" to the params of an entity, or remove it")
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
				c.addFault(w.at, w.text, "an index set with the name of a key, "+key.list+" in line "+strconv.Itoa(key.at.line), "use another name for one of the two")
			} else if tag, clash := tags[w.template.shape()]; clash {
				c.addFault(w.at, w.text, "an index set with the name of a tag, in line "+strconv.Itoa(tag.at.line), "use another name for one of the two, or only one of the two")
			}
		}
	}
}
