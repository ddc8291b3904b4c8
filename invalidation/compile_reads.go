package invalidation

import (
	"slices"
	"strconv"
	"strings"
	"time"
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
		all = append(all, r.read(part))
	}
	return all
}

func (r *readReader) read(part readPart) compiledRead {
	c := compiledRead{Read: Read{Name: part.name.text, Comment: part.comment, Line: part.name.at.line, Column: part.name.at.column}}
	h := &holeReader{names: r, part: part, of: &c, declared: map[string]*declaredName{}}
	if !isName(part.name.text) {
		r.add(part.name.at, part.name.text, "a read cannot have this name", "a name has letters, digits and _, and does not start with a digit")
	}
	h.declare()
	if !part.hasKey {
		r.add(part.name.at, part.name.text, "the read has no key", "write what readers store it under: key: \"shop:product:{product_id}\"")
	}
	c.key = h.text(part.key, "key")
	for _, s := range part.tags {
		c.tags, c.Tags = append(c.tags, h.text(s, "tags")), append(c.Tags, s.text)
	}
	for _, s := range part.sets {
		c.sets, c.Sets = append(c.sets, h.text(s, "sets")), append(c.Sets, s.text)
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
			r.add(s.at, s.text, "given twice in from", "remove one of the two")
		default:
			c.From = append(c.From, s.text)
		}
	}
	c.ExpiresOnly = part.only.text
	switch {
	case part.only.given && strings.TrimSpace(part.only.text) == "":
		r.add(part.only.at, part.only.text, "expires: only has no reason", "say why no row can make the value stale, such as "+exampleExpires)
	case part.only.given && len(part.from) > 0:
		r.add(part.only.at, part.only.text, "a read that only expires comes from no entity", "remove expires or from")
	}
}

// isEntity checks the name of an entity.
func (r *readReader) isEntity(s scalar) bool {
	if s.given && r.all.entities[s.text] == nil {
		r.add(s.at, s.text, "there is no such entity", r.didYouMean(s.text, r.all.entityNames, "the entities are "+quoteList(r.all.entityNames)))
		return false
	}
	return s.given
}

// readLifetime reads what a policy of package cache has.
func (r *readReader) readLifetime(part readPart, l *Lifetime) {
	if !part.hasTTL {
		r.add(part.name.at, part.name.text, "the read has no ttl", "say for how long readers keep it, such as ttl: 10m, or ttl: 5m..15m")
	}
	if s := part.ttl; s.given {
		first, last, isRange := strings.Cut(s.text, "..")
		l.Least = r.duration(scalar{first, s.at, true}, "ttl", maxTTL)
		if l.Most = l.Least; isRange {
			l.Most = r.duration(scalar{last, s.at, true}, "ttl", maxTTL)
		}
		if l.Most < l.Least {
			r.add(s.at, s.text, "the range ends before it begins", "write the shorter time first: "+last+".."+first)
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
			r.add(s.at, s.text, "sliding is the longest life of a value, and shorter than its ttl", "write a longer time, or remove sliding")
		case l.Stale > 0 || l.StaleOnError > 0 || part.earlyRefresh.given:
			r.add(s.at, s.text, "sliding excludes stale, stale_on_error and early_refresh", "remove sliding, or the others")
		}
	}
	if s := part.earlyRefresh; s.given && r.plainText(s) {
		beta, err := strconv.ParseFloat(s.text, 64)
		if err != nil || !(beta > 0 && beta <= 100) {
			r.add(s.at, s.text, "early_refresh must be a number above 0, to 100", "write 1, the usual value, or remove it")
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
			h.names.add(d.at, name, "the read "+h.of.Name+" has no {"+name+"}", "use it in the key or in a tag, or remove it")
		}
	}
	total := 1
	for _, hole := range h.of.Holes {
		total = product(total, max(1, len(hole.Values)), maxReadValues)
	}
	if total > maxReadValues {
		h.names.add(h.part.key.at, h.part.key.text, "its values make more than "+strconv.Itoa(maxReadValues)+" keys", "declare fewer values, or none where a pattern covers them")
	}
}

// text compiles one text.
func (h *holeReader) text(s scalar, list string) readText {
	t := readText{scalar: s}
	if !s.given || !h.names.plainText(s) {
		return t
	}
	if s.text == "" {
		h.names.add(s.at, "", "an empty text in "+list, "write a template such as "+strconv.Quote("{app}:{env}:product:{product_id}")+", or remove it")
		return t
	}
	segments, errs := parseTemplate(s.text)
	for _, err := range errs {
		h.names.add(s.at, err.text, err.problem, err.cure)
	}
	lists, total := []string(nil), 1
	for _, segment := range segments {
		switch v := h.names.vars[segment.name]; {
		case segment.name == "" && strings.Contains(segment.text, "*"):
			h.names.add(s.at, s.text, "* has no meaning in "+list+" of a read, which names one value", "write {name} for what differs")
		case segment.name == "" && hasControl(segment.text):
			h.names.add(s.at, s.text, "a template with a line break or another control character", "write it in one line, in double quotes")
		case v == nil:
		case v.list != nil && !slices.Contains(lists, segment.name):
			v.used, lists = true, append(lists, segment.name)
			total = product(total, len(v.list), maxReadValues)
		default:
			v.used = true
		}
	}
	if total > maxReadValues {
		h.names.add(s.at, s.text, "the lists of its vars make more than "+strconv.Itoa(maxReadValues)+" keys", "use a hole instead of a var")
		return t
	}
	for n := range total {
		t.variants = append(t.variants, h.variant(s, segments, lists, n))
	}
	return t
}

// variant compiles segments with the n-th choice of values of list vars.
func (h *holeReader) variant(s scalar, segments []segment, lists []string, n int) (all readVariant) {
	chosen := map[string]string{}
	for _, name := range lists {
		list := h.names.vars[name].list
		chosen[name] = list[n%len(list)]
		n /= len(list)
	}
	for _, segment := range segments {
		text := segment.text
		if v := h.names.vars[segment.name]; v != nil {
			text = v.value
			if v.list != nil {
				text = chosen[segment.name]
			}
		} else if segment.name != "" {
			all = append(all, readPiece{hole: h.hole(s, segment.name)})
			continue
		}
		if last := len(all) - 1; last >= 0 && all[last].hole == noHole {
			all[last].text += text
		} else if text != "" {
			all = append(all, readPiece{text: text, hole: noHole})
		}
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
		h.names.add(s.at, "{id}", "a read has no id of its own", "say whose ID it is, such as {product_id}")
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
