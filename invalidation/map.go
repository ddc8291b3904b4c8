package invalidation

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A Map is a compiled mapping.yaml. It is immutable and safe for concurrent use.
type Map struct {
	version  string
	channel  string
	format   protocol.Format
	lease    time.Duration
	limits   Limits
	entities map[string]*entity // with the reserved ones, which names lacks
	names    []string
	captures []Capture
	reads    ReadSection
	ranks    int
	warnings []Fault

	deprecations []Fault
	uncovered    []Fault
}

// Limits bound what one row can cost.
type Limits struct {
	// ParamsBytes is how long the params of a row may be.
	ParamsBytes int
	// KeysPerRow is to how many keys, patterns and sets together a row may expand.
	KeysPerRow int
	// PatternPrefix is how many bytes of literal text a pattern must have before its first * or ?.
	PatternPrefix int
}

// Version returns the first 12 hex digits of the SHA-256 of the effective map: variables are
// resolved, formatting and comments do not count.
func (m *Map) Version() string { return m.version }

// Channel returns the Redis channel of the published invalidations.
func (m *Map) Channel() string { return m.channel }

// Format returns the format of the messages.
func (m *Map) Format() protocol.Format { return m.format }

// Lease returns the longest lease that a reader may hold on a key that it fills.
func (m *Map) Lease() time.Duration { return m.lease }

// Limits returns the limits of the map.
func (m *Map) Limits() Limits { return m.limits }

// Entities returns the names of the entities, sorted, without reserved ones.
func (m *Map) Entities() []string { return slices.Clone(m.names) }

// Warnings returns advice about the map, in file order. A map with warnings is valid.
func (m *Map) Warnings() []Fault { return slices.Clone(m.warnings) }

// Deprecations returns the faults that this release accepts, because an upgrade must not stop a
// worker, and the next release refuses. They are in file order. `unstale map check` fails if there
// are any.
func (m *Map) Deprecations() []Fault { return slices.Clone(m.deprecations) }

// fingerprintLength is how many hex digits of the hash name a map.
const fingerprintLength = 12

// fingerprint hashes everything that determines how a row expands and is published. It leaves out
// names of vars with one value, formatting, comments and the order of entities. Texts are quoted,
// so no two different maps have the same input.
func (m *Map) fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "map 1 %q %q %d %d %d %d\n", m.channel, m.format, m.lease,
		m.limits.ParamsBytes, m.limits.KeysPerRow, m.limits.PatternPrefix)
	for _, name := range m.names {
		m.entities[name].write(h)
	}
	return hex.EncodeToString(h.Sum(nil))[:fingerprintLength]
}

func (e *entity) write(w io.Writer) {
	fmt.Fprintf(w, "entity %q %q %d %d\n", e.name, e.declared, e.repeat, e.hold)
	for n, s := range e.slots {
		fmt.Fprintf(w, "slot %q %q %t %d\n", s.name, s.each, s.optional, s.by.slots)
		if s.lookup != nil {
			fmt.Fprintf(w, "lookup %q\n", s.lookup.SQL)
		}
		// Fields of later versions are written only if they are used, so that old maps keep their
		// fingerprint.
		if s.lookup != nil && s.lookup.Always {
			fmt.Fprintln(w, "always")
		}
		if s.fallback != nil {
			fmt.Fprintf(w, "default %q\n", s.fallback)
		}
		if s.lead != n {
			fmt.Fprintf(w, "along with %d %d\n", s.lead, s.column)
		}
	}
	for _, list := range []struct {
		name      string
		templates []template
	}{{"keys", e.keys}, {"patterns", e.patterns}, {"sets", e.sets}} {
		for _, t := range list.templates {
			t.write(w, list.name)
		}
	}
	as := slices.Clone(e.as)
	sort.Slice(as, func(i, j int) bool { return as[i].target.name < as[j].target.name })
	for _, a := range as {
		a.id.write(w, fmt.Sprintf("as %q", a.target.name))
	}
}

func (t *template) write(w io.Writer, what string) {
	fmt.Fprintf(w, "%s %d", what, t.slots)
	for _, p := range t.parts {
		fmt.Fprintf(w, " %q %d", p.text, p.slot)
	}
	fmt.Fprintln(w)
}

// A Description lists what rows of an entity make, and the origins of the values.
type Description struct {
	Entity string
	// Comment is the comment above the entity in the map, without #.
	Comment string
	// Params are the names that a row may give, sorted, those of the entities included as which it
	// expands.
	Params []string
	// Names are the names in the templates, the ID first.
	Names []NameSource
	// Makes are keys, tag versions, patterns and sets of the entity itself.
	Makes []MapName
	// As are the entities as which a row expands too.
	As     []AliasSource
	Repeat []time.Duration
	Hold   time.Duration
}

// A NameSource is the origin of the values of a name: the row, unless a field says otherwise.
type NameSource struct {
	Name string
	// Each are the values of an enumeration.
	Each []string
	// Lookup is asked where the row does not give the name, or always.
	Lookup *Lookup
	// With are the names whose values go together with those of this one.
	With []string
	// Default are the values where the row does not give the name; nil: none.
	Default []string
	// Optional reports whether templates that use the name make nothing where the row does not give
	// it.
	Optional bool
}

// An AliasSource is an entity as which rows expand, with the template of its ids.
type AliasSource struct{ Entity, ID string }

// Describe describes an entity, also a reserved one, and reports whether the map has it.
func (m *Map) Describe(name string) (Description, bool) {
	e := m.entities[name]
	if e == nil {
		return Description{}, false
	}
	d := Description{Entity: name, Comment: e.comment, Params: slices.Clone(e.declared), Repeat: slices.Clone(e.repeat), Hold: e.hold}
	for kind, t := range e.kinds() {
		d.Makes = append(d.Makes, e.mapName(kind, t))
	}
	for n, s := range e.slots {
		d.Names = append(d.Names, NameSource{s.name, slices.Clone(s.each), e.lookupOf(n), e.alongWith(n), slices.Clone(s.fallback), s.optional})
	}
	for _, a := range e.as {
		d.As = append(d.As, AliasSource{a.target.name, a.id.source})
	}
	return d, true
}

// alongWith returns the names whose values go together with those of a slot.
func (e *entity) alongWith(n int) (names []string) {
	for _, other := range e.group(e.slots[n].lead) {
		if other != n {
			names = append(names, e.slots[other].name)
		}
	}
	return names
}

// A MapNameKind is the kind of a [MapName].
type MapNameKind string

// The kinds of names that a map makes.
const (
	KindKey     MapNameKind = "key"
	KindStamp   MapNameKind = "stamp" // the key of a tag
	KindPattern MapNameKind = "pattern"
	KindSet     MapNameKind = "set"
)

// A MapName is a key, a tag version, a pattern or an index set that a map makes of the rows of an
// entity.
type MapName struct {
	Entity string
	Kind   MapNameKind
	Text   string // as written
	// with a * for each value of a row: it matches every result of Text
	Glob string
	Hold time.Duration // of the entity
	// Reads are the names of the reads that it reaches, in the order of the map. They include reads
	// that it reaches only for some rows.
	Reads []string
}

// Names returns what a map makes of rows: by entity, and for each entity keys, tag versions,
// patterns and sets. Aliases are left out: they make the same as their targets.
func (m *Map) Names() []MapName {
	var list []MapName
	for made := range madeOf(m) {
		list = append(list, made.of.mapName(made.kind, made.t))
	}
	return list
}

// A madeBy is a template of an entity, and the kind of what it makes.
type madeBy struct {
	of   *entity
	kind MapNameKind
	t    *template
}

// madeOf returns the templates of all entities of a map, except those of aliases.
func madeOf(m *Map) iter.Seq[madeBy] {
	return func(yield func(madeBy) bool) {
		for _, name := range m.names {
			for kind, t := range m.entities[name].kinds() {
				if !yield(madeBy{m.entities[name], kind, t}) {
					return
				}
			}
		}
	}
}

// kinds returns every template and its kind, except those of aliases.
func (e *entity) kinds() iter.Seq2[MapNameKind, *template] {
	return func(yield func(MapNameKind, *template) bool) {
		for _, list := range []struct {
			kind      MapNameKind
			templates []template
		}{{KindKey, e.keys}, {KindPattern, e.patterns}, {KindSet, e.sets}} {
			for i := range list.templates {
				kind, t := list.kind, &list.templates[i]
				if kind == KindKey && strings.HasPrefix(t.widestName(), protocol.StampPrefix) {
					kind = KindStamp
				}
				if !yield(kind, t) {
					return
				}
			}
		}
	}
}

func (e *entity) mapName(kind MapNameKind, t *template) MapName {
	n := MapName{Entity: e.name, Kind: kind, Text: t.source, Glob: t.widestName(), Hold: e.hold, Reads: slices.Clone(t.reads)}
	if kind == KindPattern {
		n.Glob = t.withSlots("*", func(glob string) string { return glob })
	}
	return n
}

// widestName returns a glob of the possible names of a key or a set: only the values are wildcards.
func (t *template) widestName() string { return t.withSlots("*", protocol.Escape) }

// Lookups returns the lookups that templates use, each once, by the entities that use them.
func (m *Map) Lookups() []*Lookup {
	var list []*Lookup
	seen := map[*Lookup]bool{}
	for _, name := range m.names {
		for _, s := range m.entities[name].slots {
			if s.lookup != nil && !seen[s.lookup] {
				seen[s.lookup] = true
				list = append(list, s.lookup)
			}
		}
	}
	return list
}

// A MapPattern is one of a map's patterns.
type MapPattern struct {
	Entity string
	Text   string // as written
	// with a * for each value of a row: it matches every key that the pattern can match
	Glob string
}

// Patterns returns the patterns of a map, by entity and then as written.
func (m *Map) Patterns() []MapPattern {
	var list []MapPattern
	for _, n := range m.Names() {
		if n.Kind == KindPattern {
			list = append(list, MapPattern{n.Entity, n.Text, n.Glob})
		}
	}
	return list
}

//go:embed mapping.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of mapping.yaml, for editors. Parse checks more
// than it can say.
func Schema() []byte { return append([]byte(nil), schema...) }
