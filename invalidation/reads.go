package invalidation

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/protocol"
)

// Limits of the section reads.
const (
	maxTTL        = 365 * 24 * time.Hour // as in package cache
	maxReadValues = 10_000               // of the holes of an entry together
)

// A compiledRead is a Read whose texts are ready to be compared with templates.
type compiledRead struct {
	Read
	key        readText
	tags, sets []readText
}

// A readText is a template of a read, with one variant for each value of its list vars.
type readText struct {
	scalar
	variants []readVariant
}

// A readPiece is literal text or, if hole is not negative, the value of Holes[hole].
type readPiece struct {
	text string
	hole int
}

const noHole = -1

// A readVariant is a text whose vars have values.
type readVariant []readPiece

// shape returns the text with instead in the place of each hole, or the names of the holes.
func (v readVariant) shape(holes []Hole, instead string) string {
	var b strings.Builder
	for _, p := range v {
		switch {
		case p.hole == noHole:
			b.WriteString(p.text)
		case instead == "":
			b.WriteString("{" + holes[p.hole].Name + "}")
		default:
			b.WriteString(instead)
		}
	}
	return b.String()
}

// A readReader compiles the section reads.
type readReader struct {
	*globals
	all *compiler
}

func (r *readReader) readReads() (all []compiledRead) {
	for _, part := range r.doc.reads {
		all = append(all, r.compileRead(part))
	}
	return all
}

func (r *readReader) compileRead(part readPart) compiledRead {
	c := compiledRead{Read: Read{Name: part.name.text, Comment: part.comment, Line: part.name.at.line, Column: part.name.at.column}}
	h := &holeReader{names: r, part: part, of: &c, declared: map[string]*declaredName{}}
	if !isName(part.name.text) {
		r.addFault(part.name.at, part.name.text, "a read cannot have this name", "a name has letters, digits and _, and does not start with a digit")
	}
	h.declare()
	if part.has.lacks("key") {
		r.addFault(part.name.at, part.name.text, "the read has no key", "write what readers store it under: key: \"shop:product:{product_id}\"")
	}
	c.key = h.compileText(part.key, "key")
	for _, s := range part.tags {
		c.tags, c.Tags = append(c.tags, h.compileText(s, "tags")), append(c.Tags, s.text)
	}
	for _, s := range part.sets {
		c.sets, c.Sets = append(c.sets, h.compileText(s, "sets")), append(c.Sets, s.text)
	}
	h.checkUnused()
	c.Key = part.key.text
	r.readFrom(part, &c)
	r.readLifetime(part, &c.Lifetime)
	return c
}

// readFrom reads the fields from and expires.
func (r *readReader) readFrom(part readPart, c *compiledRead) {
	for _, s := range part.from {
		switch {
		case !r.isEntity(s):
		case slices.Contains(c.From, s.text):
			r.addFault(s.at, s.text, "given twice in from", "remove one of the two")
		default:
			c.From = append(c.From, s.text)
		}
	}
	c.ExpiresOnly = part.only.text
	switch {
	case part.only.given && strings.TrimSpace(part.only.text) == "":
		r.addFault(part.only.at, part.only.text, "expires: only has no reason", "say why no row can make the value stale, such as "+exampleExpires)
	case part.only.given && len(part.from) > 0:
		r.addFault(part.only.at, part.only.text, "a read that only expires comes from no entity", "remove expires or from")
	}
}

// isEntity checks the name of an entity.
func (r *readReader) isEntity(s scalar) bool {
	if s.given && r.all.entities[s.text] == nil {
		r.addFault(s.at, s.text, "there is no such entity", r.didYouMean(s.text, r.all.entityNames, "the entities are "+quoteList(r.all.entityNames)))
		return false
	}
	return s.given
}

// readLifetime reads what a policy of package cache has.
func (r *readReader) readLifetime(part readPart, l *Lifetime) {
	if part.has.lacks("ttl") {
		r.addFault(part.name.at, part.name.text, "the read has no ttl", "say for how long readers keep it, such as ttl: 10m, or ttl: 5m..15m")
	}
	if s := part.ttl; s.given {
		first, last, isRange := strings.Cut(s.text, "..")
		l.Least = r.duration(scalar{first, s.at, true}, "ttl", maxTTL)
		if l.Most = l.Least; isRange {
			l.Most = r.duration(scalar{last, s.at, true}, "ttl", maxTTL)
		}
		if l.Most < l.Least {
			r.addFault(s.at, s.text, "the range ends before it begins", "write the shorter time first: "+last+".."+first)
		}
	}
	l.Stale, l.Negative = r.orOff(part.stale, "stale"), r.orOff(part.negative, "negative")
	if part.staleOnError.given {
		l.StaleOnError = r.duration(part.staleOnError, "stale_on_error", maxTTL)
	}
	if s := part.sliding; s.given {
		l.SlidingMax = r.duration(s, "sliding", maxTTL)
		switch {
		case l.SlidingMax < l.Most:
			r.addFault(s.at, s.text, "sliding is the longest life of a value, and shorter than its ttl", "write a longer time, or remove sliding")
		case l.Stale > 0 || l.StaleOnError > 0 || part.earlyRefresh.given:
			r.addFault(s.at, s.text, "sliding excludes stale, stale_on_error and early_refresh", "remove sliding, or the others")
		}
	}
	if s := part.earlyRefresh; s.given && r.plainText(s) {
		beta, err := strconv.ParseFloat(s.text, 64)
		if err != nil || !(beta > 0 && beta <= 100) {
			r.addFault(s.at, s.text, "early_refresh must be a number above 0, to 100", "write 1, the usual value, or remove it")
		}
		l.EarlyRefresh = beta
	}
	if s := part.memory; s.given {
		l.SkipMemory = !r.isTrue(s, "memory")
	}
}

// orOff reads a duration or off.
func (r *readReader) orOff(s scalar, name string) time.Duration {
	switch {
	case !s.given:
		return 0
	case s.text == "off":
		return Off
	}
	return r.duration(s, name, maxTTL)
}

// A holeReader reads the texts of a read and the names in them.
type holeReader struct {
	names    *readReader
	part     readPart
	of       *compiledRead
	declared map[string]*declaredName // by each and of
}

// declare reads each and of.
func (h *holeReader) declare() {
	for _, e := range h.part.each {
		if h.names.newName(e.name, "a hole") {
			h.declared[e.name.text] = &declaredName{at: e.name.at, values: h.names.eachValues(e)}
		}
	}
	for _, o := range h.part.of {
		h.names.isEntity(o.value)
		if h.declared[o.name.text] == nil {
			h.declared[o.name.text] = &declaredName{at: o.name.at}
		}
	}
}

// checkUnused reports what each and of declare and no text uses, and holes with too many values.
func (h *holeReader) checkUnused() {
	for name, d := range h.declared {
		if !d.used && h.part.key.given {
			h.names.addFault(d.at, name, "the read "+h.of.Name+" has no {"+name+"}", "use it in the key or in a tag, or remove it")
		}
	}
	total := 1
	for _, hole := range h.of.Holes {
		total = product(total, max(1, len(hole.Values)), maxReadValues)
	}
	if total > maxReadValues {
		h.names.addFault(h.part.key.at, h.part.key.text, "its values make more than "+strconv.Itoa(maxReadValues)+" keys", "declare fewer values, or none where a pattern covers them")
	}
}

// compileText compiles one text.
func (h *holeReader) compileText(s scalar, list string) readText {
	t := readText{scalar: s}
	if !s.given || !h.names.plainText(s) {
		return t
	}
	if s.text == "" {
		h.names.addFault(s.at, "", "an empty text in "+list, "write a template such as "+strconv.Quote("{app}:{env}:product:{product_id}")+", or remove it")
		return t
	}
	segments, errs := parseTemplate(s.text)
	for _, err := range errs {
		h.names.addFault(s.at, err.text, err.problem, err.cure)
	}
	lists, total := []string(nil), 1
	for _, segment := range segments {
		switch v := h.names.vars[segment.Name]; {
		case segment.Name == "" && strings.Contains(segment.Text, "*"):
			h.names.addFault(s.at, s.text, "* has no meaning in "+list+" of a read, which names one value", "write {name} for what differs")
		case segment.Name == "" && hasControl(segment.Text):
			h.names.addFault(s.at, s.text, "a template with a line break or another control character", "write it in one line, in double quotes")
		case v == nil:
		case v.list != nil && !slices.Contains(lists, segment.Name):
			v.used, lists = true, append(lists, segment.Name)
			total = product(total, len(v.list), maxReadValues)
		default:
			v.used = true
		}
	}
	if total > maxReadValues {
		h.names.addFault(s.at, s.text, "the lists of its vars make more than "+strconv.Itoa(maxReadValues)+" keys", "use a hole instead of a var")
		return t
	}
	for n := range total {
		t.variants = append(t.variants, h.variant(s, segments, lists, n))
	}
	return t
}

// variant compiles segments with the n-th choice of values of list vars.
func (h *holeReader) variant(s scalar, segments []Segment, lists []string, n int) (all readVariant) {
	chosen := map[string]string{}
	for _, name := range lists {
		list := h.names.vars[name].list
		chosen[name] = list[n%len(list)]
		n /= len(list)
	}
	for _, segment := range segments {
		p := readPiece{text: segment.Text, hole: noHole}
		switch v := h.names.vars[segment.Name]; {
		case v != nil && v.list != nil:
			p.text = chosen[segment.Name]
		case v != nil:
			p.text = v.value
		case segment.Name != "":
			p.hole = h.hole(s, segment.Name)
		}
		all = all.with(p)
	}
	return all
}

// hole returns the number of a hole, and makes it at its first use.
func (h *holeReader) hole(s scalar, name string) int {
	if n := slices.IndexFunc(h.of.Holes, func(other Hole) bool { return other.Name == name }); n >= 0 {
		return n
	}
	hole := Hole{Name: name}
	if name == idName {
		h.names.addFault(s.at, "{id}", "a read has no id of its own", "say whose ID it is, such as {product_id}")
	}
	if d := h.declared[name]; d != nil {
		d.used = true
		hole.Values = d.values
	}
	if each := h.names.each[name]; each != nil {
		each.used = true
		if hole.Values == nil {
			hole.Values = each.values
		}
	}
	if entity, isID := strings.CutSuffix(name, "_id"); isID && h.names.all.entities[entity] != nil {
		hole.Entity = entity
	}
	for _, o := range h.part.of {
		if o.name.text == name {
			hole.Entity = o.value.text
		}
	}
	h.of.Holes = append(h.of.Holes, hole)
	return len(h.of.Holes) - 1
}

// A ReadName is a text of a read that can be the name of a key in Redis.
type ReadName struct {
	Read string
	// Kind is KindKey, KindStamp for the tag version of a tag, or KindSet for an index set.
	Kind MapNameKind
	Text string // as written
	// Unsure reports whether a value of a hole contains a colon: the key may as well be a longer
	// name, which no read has.
	Unsure bool
}

// Of returns the names of reads that a key can be, in the order of the map, unsure ones last. Each
// hole takes a whole value that has its type and, if the read lists its values, is among them.
func (s *ReadSection) Of(key string) []ReadName {
	var sure, unsure []ReadName
	b := budget{steps: maxOriginSteps}
	for i := range s.names {
		n := &s.names[i]
		if first := &n.text.parts[0]; first.slot == noSlot && !strings.HasPrefix(key, first.text) {
			continue
		}
		fits, whole := false, false
		b.match(n.holes, &n.text, false, key, func(values map[string]string) {
			good, colon := n.judge(values)
			fits, whole = fits || good, whole || good && !colon
		})
		switch name := n.ReadName; {
		case whole:
			sure = append(sure, name)
		case fits:
			name.Unsure = true
			unsure = append(unsure, name)
		}
	}
	return append(sure, unsure...)
}

// Globs returns globs of the names of one kind of all reads, in file order: with a * for each hole
// and each list var.
func (s *ReadSection) Globs(kind MapNameKind) (globs []string) {
	for i := range s.names {
		if n := &s.names[i]; n.Kind == kind {
			globs = append(globs, n.text.widestName())
		}
	}
	return globs
}

// Prefix returns the literal text that the keys of all reads begin with, up to a colon.
func (s *ReadSection) Prefix() string {
	var prefix string
	first := true
	for i := range s.names {
		if s.names[i].Kind != KindKey {
			continue
		}
		literal := ""
		if p := &s.names[i].text.parts[0]; p.slot == noSlot {
			literal = p.text
		}
		if first {
			prefix, first = literal, false
		}
		for !strings.HasPrefix(literal, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix[:strings.LastIndex(prefix, ":")+1]
}

// A readTemplate is a ReadName as a template of an entity whose slots are the holes and list vars.
type readTemplate struct {
	ReadName
	holes *entity
	types map[string]ValueType // of holes without listed values
	text  template
}

// judge reports whether values have the types of their holes, and whether one contains a colon.
func (n *readTemplate) judge(values map[string]string) (good, colon bool) {
	for name, v := range values {
		if v == "" || !n.types[name].has(v) {
			return false, false
		}
		colon = colon || strings.Contains(v, ":")
	}
	return true, colon
}

// readTemplates compiles the texts of a read once more, as templates.
func (c *compiler) readTemplates(r *compiledRead) (all []readTemplate) {
	e, types, bound := &entity{slots: []slot{{name: idName}}}, map[string]ValueType{}, map[string]binding{}
	add := func(name string, each []string) {
		bound[name] = binding{slot: len(e.slots)}
		e.slots = append(e.slots, slot{name: name, each: each})
	}
	for _, h := range r.Holes {
		add(h.Name, h.Values)
		types[h.Name] = h.Type
	}
	for name, v := range c.vars {
		if v.list != nil {
			add(name, v.list)
		} else {
			bound[name] = binding{value: v.value, slot: noSlot}
		}
	}
	text := func(kind MapNameKind, source string, before ...Segment) {
		segments, _ := parseTemplate(source)
		if len(segments) == 0 {
			return // reported
		}
		all = append(all, readTemplate{ReadName{Read: r.Name, Kind: kind, Text: source}, e, types,
			newTemplate(source, slices.Concat(before, segments), bound, false)})
	}
	text(KindKey, r.Key)
	for _, tag := range r.Tags {
		text(KindStamp, tag, Segment{Text: protocol.StampPrefix})
	}
	for _, set := range r.Sets {
		text(KindSet, set)
	}
	return all
}

// A Read is an entry of the section reads: a value that readers store, its lifetime, and what makes
// it stale.
type Read struct {
	Name string
	// Comment is the comment above the entry, without #.
	Comment string
	// Key, Tags and Sets are templates as written, with {name} for a hole or a var. Sets are the
	// index sets that contain the key.
	Key        string
	Tags, Sets []string
	// Holes are the names in the templates that the reader gives, in the order of first use.
	Holes []Hole
	// From are the entities that make the value stale, each of which covers it; none: any that
	// does.
	From []string
	// ExpiresOnly is the reason why no entity has to make the value stale, or empty.
	ExpiresOnly string
	Lifetime    Lifetime
	// Line and Column are the place in the map.
	Line, Column int
}

// A Hole is a name in the templates of a Read whose value the reader gives.
type Hole struct {
	Name string
	// Values are all values that it can have; nil: not known.
	Values []string
	// Entity is the entity whose IDs are its values, or empty.
	Entity string
	// Type is the type that generated code gives to its values.
	Type ValueType
}

// A Lifetime is for how long and how a value is kept. See the fields of the same names in
// cache.Options. Off stands for a field that the map turns off, and 0 for one that it leaves out.
type Lifetime struct {
	// Least and Most are the bounds of the TTL: readers choose one at random between them.
	Least, Most                   time.Duration
	Stale, StaleOnError, Negative time.Duration
	// SlidingMax is the longest life of a value that each read extends, or 0.
	SlidingMax   time.Duration
	EarlyRefresh float64
	SkipMemory   bool
}

// Off is the duration of a feature that a map turns off.
const Off time.Duration = -1

// Uncovered returns what the section reads leaves open, in file order: entries that no entity makes
// stale, templates of entities that reach no entry, and keys that mean two things. It is empty
// without the section. `unstale map check` fails if there is any; workers do not need the section,
// and ignore it.
func (m *Map) Uncovered() []Fault { return slices.Clone(m.uncovered) }

// texts returns the templates of the read.
func (r *Read) texts() []string { return slices.Concat([]string{r.Key}, r.Tags, r.Sets) }

// A ReadSection has the section reads of a map, and the section types.
type ReadSection struct {
	version string
	all     []Read
	vars    []Var // that the reads use
	types   map[string]ValueType
	names   []readTemplate
}

// Reads returns the sections reads and types.
func (m *Map) Reads() *ReadSection { return &m.reads }

// All returns the entries, in file order.
func (s *ReadSection) All() []Read {
	all := slices.Clone(s.all)
	for i := range all {
		r := &all[i]
		r.Tags, r.Sets, r.From, r.Holes = slices.Clone(r.Tags), slices.Clone(r.Sets), slices.Clone(r.From), slices.Clone(r.Holes)
		for j := range r.Holes {
			r.Holes[j].Values = slices.Clone(r.Holes[j].Values)
		}
	}
	return all
}

// Vars returns the vars that the reads use, in file order.
func (s *ReadSection) Vars() []Var { return slices.Clone(s.vars) }

// TypeOf returns the type of the values of a name, which is a hole, a param, or entity + "_id" for
// the IDs of an entity. Without an entry in the section types it is TypeText.
func (s *ReadSection) TypeOf(name string) ValueType {
	return cmp.Or(s.types[name], TypeText)
}

// Version returns the fingerprint of the reads, which readers report: see protocol.ReadsVersion. It
// is "" for a map without the section.
func (s *ReadSection) Version() string { return s.version }

// fingerprint makes the version.
func (s *ReadSection) fingerprint() string {
	if len(s.all) == 0 {
		return ""
	}
	var values []string
	for _, v := range s.vars {
		values = append(values, v.Values...)
	}
	return protocol.ReadsVersion(s.Hash(), values)
}

// Hash returns a hash of the reads that does not depend on the values of vars. Changes of
// formatting, comments and the section entities do not change it.
func (s *ReadSection) Hash() string {
	h := sha256.New()
	for i := range s.all {
		r := &s.all[i]
		fmt.Fprintf(h, "read %q %q %q %q %q %t\n", r.Name, r.Key, r.Tags, r.Sets, r.From, r.ExpiresOnly != "")
		for _, hole := range r.Holes {
			fmt.Fprintf(h, "hole %q %q %q\n", hole.Name, hole.Values, hole.Type)
		}
		fmt.Fprintf(h, "lifetime %+v\n", r.Lifetime)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A Var is an entry of vars.
type Var struct {
	Name string
	// Texts are the values as written, with ${NAME} and ${NAME:-default}. For the field from, it is
	// ${NAME} alone.
	Texts []string
	// List reports whether the var has a list of values.
	List bool
	// OneOf are the values that it may have; nil: any.
	OneOf []string
	// Values are the values now: one, or those of a list.
	Values []string
}

// usedByReads returns the vars that reads use.
func (c *compiler) usedByReads() (all []Var) {
	used := map[string]bool{}
	for i := range c.reads {
		for _, text := range c.reads[i].texts() {
			segments, _ := parseTemplate(text)
			for _, s := range segments {
				used[s.Name] = true
			}
		}
	}
	for _, part := range c.doc.vars {
		v := c.vars[part.name.text]
		if v == nil || !used[part.name.text] {
			continue
		}
		described := Var{Name: part.name.text, List: part.list, Values: []string{v.value}}
		if from := part.fromEnv; from != nil {
			described.Texts = []string{"${" + from.from.text + "}"}
			for _, one := range from.oneOf {
				described.OneOf = append(described.OneOf, one.text)
			}
		}
		if part.list {
			described.Values = v.list
		}
		for _, text := range part.values {
			described.Texts = append(described.Texts, text.text)
		}
		all = append(all, described)
	}
	return all
}
