package invalidation

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/protocol"
)

// A template is compiled: variables of the map are resolved, names are numbers of slots.
type template struct {
	source string // as written
	at     place
	tag    bool // of the list tags
	parts  []part
	// The slots of the choice are those that the parts use.
	choice
	// For a pattern: wild reports whether it has a wildcard. prefixSize is the length of the
	// unescaped literal text before the first wildcard. The slots before it are among the first
	// prefixParts parts.
	wild                    bool
	prefixSize, prefixParts int
	// reads are the names of the reads that it reaches, in the order of the map.
	reads []string
}

// A part is literal text or, if slot is not negative, the value of slots[slot].
type part struct {
	text string
	slot int
}

const noSlot = -1

// A binding is the meaning of a name at compile time: a value of vars, or a slot of the entity.
type binding struct {
	value string
	slot  int
}

// newTemplate compiles segments whose names are all bound. In a pattern the values of vars are
// escaped: only what the template itself says is special.
func newTemplate(source string, segments []Segment, bound map[string]binding, pattern bool) template {
	t := template{source: source}
	for _, s := range segments {
		text, slot := s.Text, noSlot
		if s.Name != "" {
			b := bound[s.Name]
			text, slot = b.value, b.slot
			if pattern && slot == noSlot {
				text = protocol.Escape(text)
			}
		}
		if slot == noSlot {
			t.addLiteral(text)
		} else {
			t.addSlot(slot)
		}
	}
	return t
}

func (t *template) addLiteral(text string) {
	for i := 0; i < len(text) && !t.wild; i++ {
		switch text[i] {
		case '*', '?':
			t.wild = true
			continue
		case '\\':
			i++
		}
		t.prefixSize++
	}
	if n := len(t.parts); n > 0 && t.parts[n-1].slot == noSlot {
		t.parts[n-1].text += text
		return
	}
	t.parts = append(t.parts, part{text: text, slot: noSlot})
}

func (t *template) addSlot(slot int) {
	at := slices.Index(t.slots, slot)
	if at < 0 {
		at = len(t.slots)
		t.slots = append(t.slots, slot)
	}
	t.parts = append(t.parts, part{slot: at})
	if !t.wild {
		t.prefixParts = len(t.parts)
	}
}

// shape returns the template with every slot alike: two templates of one shape can name the same
// key.
func (t *template) shape() string {
	return t.withSlots("\x00", func(literal string) string { return literal })
}

// withSlots returns a text with slot in the place of each slot, between what written returns for
// the literal text.
func (t *template) withSlots(slot string, written func(literal string) string) string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.slot == noSlot {
			b.WriteString(written(p.text))
		} else {
			b.WriteString(slot)
		}
	}
	return b.String()
}

// A templateReader compiles the templates of an entity.
type templateReader struct {
	*scalars
	of *entityCompiler
}

// readTemplates compiles everything that the entity invalidates.
func (r *templateReader) readTemplates() {
	for _, list := range []struct {
		name  string
		parts []scalar
		into  *[]template
	}{
		{"keys", r.of.part.keys, &r.of.entity.keys},
		{"tags", r.of.part.tags, &r.of.entity.keys},
		{"patterns", r.of.part.patterns, &r.of.entity.patterns},
		{"sets", r.of.part.sets, &r.of.entity.sets},
	} {
		for _, s := range list.parts {
			if w, ok := r.template(s, list.name); ok {
				*list.into = append(*list.into, w.template)
				r.of.written = append(r.of.written, w)
			}
		}
	}
	for _, as := range r.of.part.as {
		if !as.value.given {
			r.of.links = append(r.of.links, link{target: as.name})
			r.of.unclear = true
			continue
		}
		w, _ := r.template(as.value, "as")
		// a bad template does not hide an unknown entity
		r.of.links = append(r.of.links, link{as.name, w.template})
	}
}

// template compiles one text of a list.
func (r *templateReader) template(s scalar, list string) (w writtenTemplate, ok bool) {
	w = writtenTemplate{scalar: s, list: list}
	before := len(r.faults)
	if s.text == "" {
		r.addFault(s.at, "", "an empty template in "+list, "write a template such as "+strconv.Quote("{app}:{env}:product:{id}")+", or remove it")
		return w, false
	}
	if !r.plainText(s) {
		r.of.unclear = true
		return w, false
	}
	segments, errs := parseTemplate(s.text)
	for _, err := range errs {
		r.of.unclear = true
		r.addFault(s.at, err.text, err.problem, err.cure)
	}
	bound := map[string]binding{}
	for _, segment := range segments {
		if segment.Name == "" {
			r.checkLiteral(s, segment.Text, list)
		} else if _, known := bound[segment.Name]; !known {
			bound[segment.Name] = r.bind(s, segment.Name)
		}
	}
	if len(r.faults) > before {
		return w, false
	}
	if list == "tags" {
		segments = append([]Segment{{Text: protocol.StampPrefix}}, segments...)
	}
	w.segments = segments
	w.template = newTemplate(s.text, segments, bound, list == "patterns")
	w.template.at, w.template.tag = s.at, list == "tags"
	w.template.join(r.of.entity.slots)
	r.checkSize(w)
	return w, len(r.faults) == before
}

// checkLiteral checks a literal piece of a template.
func (r *templateReader) checkLiteral(s scalar, text, list string) {
	if hasControl(text) {
		r.addFault(s.at, s.text, "a template with a line break or another control character", "write it in one line, in double quotes")
	}
	switch {
	case list == "patterns":
		if _, err := protocol.CompileGlob(text); err != nil {
			r.addGlob(s, err)
		}
	case list == "keys" && strings.Contains(text, "*"):
		r.addFault(s.at, s.text, "* has no meaning in an exact key", "did you mean patterns?")
	case list != "as" && strings.Contains(text, "*"):
		r.addFault(s.at, s.text, "* has no meaning in "+list+", which name one key each", "did you mean patterns?")
	}
}

func (r *templateReader) addGlob(s scalar, err error) {
	if errors.Is(err, protocol.ErrGlobClass) {
		r.addFault(s.at, s.text, err.Error(), `write \\[ in double quotes for a literal [, or ? for any one character`)
		return
	}
	r.addFault(s.at, s.text, "a backslash with no character behind it", `write \\\\ in double quotes for a literal backslash`)
}

// bind returns the meaning of a name in a template.
func (r *templateReader) bind(s scalar, name string) binding {
	if v := r.of.vars[name]; v != nil {
		v.used = true
		if v.list != nil {
			return binding{slot: r.eachSlot(name, v.list)}
		}
		return binding{value: v.value, slot: noSlot}
	}
	if each := r.of.each[name]; each != nil {
		each.used = true
		return binding{slot: r.eachSlot(name, each.values)}
	}
	if p := r.of.params[name]; p != nil {
		return binding{slot: r.of.slots.paramSlot(name, p)}
	}
	if each := r.of.globals.each[name]; each != nil {
		each.used = true
		return binding{slot: r.eachSlot(name, each.values)}
	}
	if name != idName {
		r.unknownName(s, name)
	}
	return binding{slot: idSlot}
}

func (r *templateReader) eachSlot(name string, values []string) int {
	if n, known := r.of.slots.known[name]; known {
		return n
	}
	return r.of.slots.newSlot(name, slot{each: values})
}

// unknownName reports a name without a meaning. The name that was probably meant counts as used.
func (r *templateReader) unknownName(s scalar, name string) {
	if shared := r.of.globals.params[name]; shared != nil {
		shared.used = true
		r.addFault(s.at, "{"+name+"}", "the entity "+r.of.entity.name+" does not name this param", "add "+name+" to the params of "+r.of.entity.name)
		return
	}
	known := r.knownNames()
	like := r.nearest(name, known)
	if v := r.of.vars[like]; v != nil {
		v.used = true
	}
	for _, d := range []*declaredName{r.of.params[like], r.of.each[like], r.of.globals.each[like]} {
		if d != nil {
			d.used = true
		}
	}
	r.addFault(s.at, "{"+name+"}", "unknown name",
		near.Ask(like, "add "+name+" to the params of "+r.of.entity.name+"; known here: "+quoteList(known)))
}

// knownNames returns the names that a template of the entity may use, sorted; of a great many it
// knows but the id.
func (r *templateReader) knownNames() []string {
	known := []string{idName}
	if r.guesses += len(r.of.params) + len(r.of.each) + len(r.of.globals.each) + len(r.of.vars); r.guesses <= maxGuesses {
		known = slices.AppendSeq(known, maps.Keys(r.of.params))
		known = slices.AppendSeq(known, maps.Keys(r.of.each))
		known = slices.AppendSeq(known, maps.Keys(r.of.globals.each))
		known = slices.AppendSeq(known, maps.Keys(r.of.vars))
	}
	slices.Sort(known)
	return known
}

// checkSize checks what can be said of a template's expansions without a row.
func (r *templateReader) checkSize(w writtenTemplate) {
	total := 1
	for _, n := range w.template.slots {
		s := r.of.entity.slots[n]
		if w.list == "patterns" && slices.Contains(s.fallback, "") {
			r.addFault(w.at, "{"+s.name+"}", "a default with an empty value in a pattern", "remove the empty value, or the default")
		}
		if s.each == nil {
			total = product(total, max(1, len(s.fallback)), r.of.all.limits.KeysPerRow)
			continue
		}
		total = product(total, len(s.each), r.of.all.limits.KeysPerRow)
		if w.list == "patterns" && slices.Contains(s.each, "") {
			r.addFault(w.at, "{"+s.name+"}", "an enumeration with an empty value in a pattern", "remove the empty value, or use another enumeration here")
		}
	}
	if total > r.of.all.limits.KeysPerRow {
		r.addFault(w.at, w.text, "the enumerations and defaults make more than "+strconv.Itoa(r.of.all.limits.KeysPerRow)+" keys of one row (limits.keys_per_row)",
			"enumerate less, or use a pattern or an index set")
	}
	if w.list != "patterns" {
		return
	}
	if _, longest := r.of.entity.prefixSizes(&w.template); longest < r.of.all.limits.PatternPrefix {
		r.addFault(w.at, w.text, "at most "+strconv.Itoa(longest)+" bytes of literal text before the first wildcard, and limits.pattern_prefix is "+strconv.Itoa(r.of.all.limits.PatternPrefix),
			"start the pattern with more literal text")
	}
}

// prefixSizes returns how many bytes of literal text a pattern has at least and at most before its
// first wildcard. The value of a row has one at least, and any number at most.
func (e *entity) prefixSizes(t *template) (least, most int) {
	least, most = t.prefixSize, t.prefixSize
	for _, p := range t.parts[:t.prefixParts] {
		if p.slot == noSlot {
			continue
		}
		shortest, longest := 1, maxRowBytes
		if each := e.slots[t.slots[p.slot]].each; each != nil {
			bySize := func(a, b string) int { return len(a) - len(b) }
			shortest, longest = len(slices.MinFunc(each, bySize)), len(slices.MaxFunc(each, bySize))
		}
		least, most = least+shortest, most+longest
	}
	return least, most
}

// A Segment is a piece of a template: literal text, or a name where Name is not empty.
type Segment struct{ Text, Name string }

// SplitTemplate splits a valid template at its names.
func SplitTemplate(source string) (all []Segment) {
	all, _ = parseTemplate(source)
	return all
}

// A templateError describes the error of a template.
type templateError struct{ text, problem, cure string }

const cureBraces = `write {name} for a variable, {{ and }} for literal braces`

// parseTemplate splits a template at its names. {name} is a variable, {{ and }} are literal braces.
// All errors are returned; with an error the segments are those that could be read.
func parseTemplate(source string) (all []Segment, errs []templateError) {
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			all = append(all, Segment{Text: literal.String()})
			literal.Reset()
		}
	}
	fail := func(text, problem, cure string) { errs = append(errs, templateError{text, problem, cure}) }
	for i := 0; i < len(source); i++ {
		switch c := source[i]; {
		case c != '{' && c != '}':
			literal.WriteByte(c)
		case strings.HasPrefix(source[i+1:], source[i:i+1]):
			literal.WriteByte(c)
			i++
		case c == '}':
			fail(source, "a closing brace without an opening one", cureBraces)
		default:
			end := strings.IndexAny(source[i+1:], "{}")
			if end < 0 || source[i+1+end] == '{' {
				fail(source, "a brace is not closed", cureBraces)
				continue
			}
			name := source[i+1 : i+1+end]
			if !isName(name) {
				fail(source[i:i+end+2], "not a name", "a name has letters, digits and _, and does not start with a digit; "+cureBraces)
			} else {
				flush()
				all = append(all, Segment{Name: name})
			}
			i += end + 1
		}
	}
	flush()
	return all, errs
}

// isName reports whether s can name a variable, a parameter or an enumeration.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// isEntityName reports whether s can name an entity: as a name, with - . and : too, and at most 64
// bytes.
func isEntityName(s string) bool {
	for i := range len(s) {
		if strings.IndexByte("-.:", s[i]) < 0 && !isName("_"+s[i:i+1]) {
			return false
		}
	}
	return s != "" && len(s) <= maxEntityName
}

// maxEntityName is how many bytes the name of an entity may have.
const maxEntityName = 64
