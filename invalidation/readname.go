package invalidation

import (
	"slices"
	"strings"

	"github.com/unstale/unstale/protocol"
)

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
	text := func(kind MapNameKind, source string, before ...segment) {
		segments, _ := parseTemplate(source)
		if len(segments) == 0 {
			return // reported
		}
		all = append(all, readTemplate{ReadName{Read: r.Name, Kind: kind, Text: source}, e, types,
			newTemplate(source, slices.Concat(before, segments), bound, false)})
	}
	text(KindKey, r.Key)
	for _, tag := range r.Tags {
		text(KindStamp, tag, segment{text: protocol.StampPrefix})
	}
	for _, set := range r.Sets {
		text(KindSet, set)
	}
	return all
}
