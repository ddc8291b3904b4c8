package invalidation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/unstale/unstale/protocol"
)

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
	if t, ok := s.types[name]; ok {
		return t
	}
	return TypeText
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
				used[s.name] = true
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
