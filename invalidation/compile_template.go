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

// readTemplates compiles everything that the entity invalidates.
func (e *entityCompiler) readTemplates() {
	for _, list := range []struct {
		name  string
		parts []scalar
		into  *[]template
	}{
		{"keys", e.part.keys, &e.entity.keys},
		{"tags", e.part.tags, &e.entity.keys},
		{"patterns", e.part.patterns, &e.entity.patterns},
		{"sets", e.part.sets, &e.entity.sets},
	} {
		for _, s := range list.parts {
			if w, ok := e.template(s, list.name); ok {
				*list.into = append(*list.into, w.template)
				e.written = append(e.written, w)
			}
		}
	}
	for _, as := range e.part.as {
		if !as.value.given {
			e.links = append(e.links, link{target: as.name})
			e.unclear = true
			continue
		}
		w, _ := e.template(as.value, "as")
		e.links = append(e.links, link{as.name, w.template}) // a bad template does not hide an unknown entity
	}
}

// template compiles one text of a list.
func (e *entityCompiler) template(s scalar, list string) (w writtenTemplate, ok bool) {
	w = writtenTemplate{scalar: s, list: list}
	before := len(e.faults)
	if s.text == "" {
		e.add(s.at, "", "an empty template in "+list, "write a template such as "+strconv.Quote("{app}:{env}:product:{id}")+", or remove it")
		return w, false
	}
	if !e.plainText(s) {
		e.unclear = true
		return w, false
	}
	segments, errs := parseTemplate(s.text)
	for _, err := range errs {
		e.unclear = true
		e.add(s.at, err.text, err.problem, err.cure)
	}
	bound := map[string]binding{}
	for _, segment := range segments {
		if segment.name == "" {
			e.checkLiteral(s, segment.text, list)
		} else if _, known := bound[segment.name]; !known {
			bound[segment.name] = e.bind(s, segment.name)
		}
	}
	if len(e.faults) > before {
		return w, false
	}
	if list == "tags" {
		segments = append([]segment{{text: protocol.StampPrefix}}, segments...)
	}
	w.segments = segments
	w.template = newTemplate(s.text, segments, bound, list == "patterns")
	w.template.join(e.entity.slots)
	e.checkSize(w)
	return w, len(e.faults) == before
}

// checkLiteral checks a literal piece of a template.
func (e *entityCompiler) checkLiteral(s scalar, text, list string) {
	if hasControl(text) {
		e.add(s.at, s.text, "a template with a line break or another control character", "write it in one line, in double quotes")
	}
	switch {
	case list == "patterns":
		if _, err := protocol.CompileGlob(text); err != nil {
			e.addGlob(s, err)
		}
	case list == "keys" && strings.Contains(text, "*"):
		e.add(s.at, s.text, "* has no meaning in an exact key", "did you mean patterns?")
	case list != "as" && strings.Contains(text, "*"):
		e.add(s.at, s.text, "* has no meaning in "+list+", which name one key each", "did you mean patterns?")
	}
}

func (e *entityCompiler) addGlob(s scalar, err error) {
	if errors.Is(err, protocol.ErrGlobClass) {
		e.add(s.at, s.text, err.Error(), `write \\[ in double quotes for a literal [, or ? for any one character`)
		return
	}
	e.add(s.at, s.text, "a backslash with no character behind it", `write \\\\ in double quotes for a literal backslash`)
}

// bind returns what a name in a template stands for.
func (e *entityCompiler) bind(s scalar, name string) binding {
	if v := e.vars[name]; v != nil {
		v.used = true
		if v.list != nil {
			return binding{slot: e.eachSlot(name, v.list)}
		}
		return binding{value: v.value, slot: noSlot}
	}
	if each := e.each[name]; each != nil {
		each.used = true
		return binding{slot: e.eachSlot(name, each.values)}
	}
	if p := e.params[name]; p != nil {
		return binding{slot: e.paramSlot(name, p)}
	}
	if each := e.compiler.each[name]; each != nil {
		each.used = true
		return binding{slot: e.eachSlot(name, each.values)}
	}
	if name != idName {
		e.unknownName(s, name)
	}
	return binding{slot: idSlot}
}

func (e *entityCompiler) eachSlot(name string, values []string) int {
	if n, known := e.slots[name]; known {
		return n
	}
	return e.slot(name, slot{each: values})
}

// unknownName reports a name that stands for nothing. The name that was probably meant counts as used.
func (e *entityCompiler) unknownName(s scalar, name string) {
	if shared := e.shared[name]; shared != nil {
		shared.used = true
		e.add(s.at, "{"+name+"}", "the entity "+e.entity.name+" does not name this param", "add "+name+" to the params of "+e.entity.name)
		return
	}
	known := e.knownNames()
	like := e.nearest(name, known)
	if v := e.vars[like]; v != nil {
		v.used = true
	}
	for _, d := range []*declaredName{e.params[like], e.each[like], e.compiler.each[like]} {
		if d != nil {
			d.used = true
		}
	}
	e.add(s.at, "{"+name+"}", "unknown name",
		near.Ask(like, "add "+name+" to the params of "+e.entity.name+"; known here: "+quoteList(known)))
}

// knownNames are the names that a template of the entity may use, sorted; of a great many it knows but the id.
func (e *entityCompiler) knownNames() []string {
	known := []string{idName}
	if e.spend(len(e.params) + len(e.each) + len(e.compiler.each) + len(e.vars)) {
		known = slices.AppendSeq(known, maps.Keys(e.params))
		known = slices.AppendSeq(known, maps.Keys(e.each))
		known = slices.AppendSeq(known, maps.Keys(e.compiler.each))
		known = slices.AppendSeq(known, maps.Keys(e.vars))
	}
	slices.Sort(known)
	return known
}

// checkSize checks what can be said of a template's expansions without a row.
func (e *entityCompiler) checkSize(w writtenTemplate) {
	total := 1
	for _, n := range w.template.slots {
		s := e.entity.slots[n]
		if w.list == "patterns" && slices.Contains(s.fallback, "") {
			e.add(w.at, "{"+s.name+"}", "a default with an empty value in a pattern", "remove the empty value, or the default")
		}
		if s.each == nil {
			total = product(total, max(1, len(s.fallback)), e.limits.KeysPerRow)
			continue
		}
		total = product(total, len(s.each), e.limits.KeysPerRow)
		if w.list == "patterns" && slices.Contains(s.each, "") {
			e.add(w.at, "{"+s.name+"}", "an enumeration with an empty value in a pattern", "remove the empty value, or use another enumeration here")
		}
	}
	if total > e.limits.KeysPerRow {
		e.add(w.at, w.text, "the enumerations and defaults make more than "+strconv.Itoa(e.limits.KeysPerRow)+" keys of one row (limits.keys_per_row)",
			"enumerate less, or use a pattern or an index set")
	}
	if w.list != "patterns" {
		return
	}
	longest := w.template.prefixSize
	for _, p := range w.template.parts[:w.template.prefixParts] {
		if p.slot == noSlot {
			continue
		}
		each := e.entity.slots[w.template.slots[p.slot]].each
		if each == nil {
			return // as long as the row's value makes it
		}
		longest += len(slices.MaxFunc(each, func(a, b string) int { return len(a) - len(b) }))
	}
	if longest < e.limits.PatternPrefix {
		e.add(w.at, w.text, "at most "+strconv.Itoa(longest)+" bytes of literal text before the first wildcard, and limits.pattern_prefix is "+strconv.Itoa(e.limits.PatternPrefix),
			"start the pattern with more literal text")
	}
}
