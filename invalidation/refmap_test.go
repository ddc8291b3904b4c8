package invalidation_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// A refMap is a random map. The names of its params are p0 to p9: a lookup is asked by the id, by
// names before its own, or by its own.
type refMap struct {
	vars, each map[string][]string
	params     map[string]*refParam
	leads      map[string]string
	entities   []*refEntity
}

type refParam struct {
	optional bool
	fallback []string
	with     []string
	lookup   *refLookup
}

type refLookup struct {
	by     []string
	always bool
	table  string
	values int
}

type refEntity struct {
	name      string
	lookups   map[string]*refLookup
	each      map[string][]string
	templates map[string][]string // by list
	as        map[string]string
	declared  map[string]bool
	used      map[string]bool
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func oneIn(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func newRefMap(r *rand.Rand) *refMap {
	m := &refMap{
		vars: map[string][]string{"app": {"shop"}, "lang": {"en", "x"}}, each: map[string][]string{"page": {"1", "2"}},
		params: map[string]*refParam{}, leads: map[string]string{},
	}
	var names []string
	for i := range 10 {
		names = append(names, "p"+strconv.Itoa(i))
	}
	for i, name := range names {
		if m.leads[name] != "" {
			continue
		}
		p := &refParam{}
		for j := i + 1; j < len(names) && len(p.with) < 2 && oneIn(r, 4); j++ {
			p.with = append(p.with, names[j])
			m.leads[names[j]] = name
		}
		switch r.IntN(6) {
		case 0:
			p.optional = true
		case 1:
			if p.fallback = []string{"d"}; oneIn(r, 2) {
				p.fallback = []string{"d", "e"}
			}
		case 2, 3:
			p.lookup = m.newLookup(r, name, names[:i], len(p.with))
			if slices.Contains(p.lookup.by, name) {
				if p.optional = oneIn(r, 2); !p.optional && oneIn(r, 2) {
					p.fallback = []string{"d"}
				}
			}
		}
		if len(p.with) > 0 {
			p.fallback = nil
		}
		m.params[name] = p
	}
	const count = 5
	for i := range count {
		e := &refEntity{
			name: "e" + strconv.Itoa(i), lookups: map[string]*refLookup{}, each: map[string][]string{},
			templates: map[string][]string{}, as: map[string]string{}, declared: map[string]bool{}, used: map[string]bool{},
		}
		if oneIn(r, 3) {
			e.each["page"] = []string{"7"}
		}
		known := append([]string{"id", "page", "lang"}, names...)
		text := func(most int) string {
			var b strings.Builder
			for range 1 + r.IntN(most) {
				b.WriteString(pick(r, []string{"", ":", "-"}) + "{" + pick(r, known) + "}")
			}
			return b.String()
		}
		for range 1 + r.IntN(2) {
			e.templates["keys"] = append(e.templates["keys"], "{app}"+e.name+text(3))
		}
		if oneIn(r, 2) {
			e.templates["patterns"] = []string{"{app}:long:" + text(3) + ":*"}
		}
		if oneIn(r, 3) {
			e.templates["sets"] = []string{"set:" + e.name + text(4)}
		}
		if oneIn(r, 3) {
			e.templates["tags"] = []string{"tag" + text(2)}
		}
		if i+1 < count && oneIn(r, 2) {
			e.as["e"+strconv.Itoa(i+1+r.IntN(count-1-i))] = text(1)
		}
		for i, name := range names {
			if oneIn(r, 6) && m.leads[name] == "" {
				e.lookups[name] = m.newLookup(r, name, names[:i], len(m.params[name].with))
			}
		}
		m.close(e)
		m.entities = append(m.entities, e)
	}
	m.prune()
	return m
}

// prune removes what no entity uses.
func (m *refMap) prune() {
	used := map[string]bool{}
	for _, e := range m.entities {
		maps.Copy(used, e.used)
	}
	for name, p := range m.params {
		p.with = slices.DeleteFunc(p.with, func(n string) bool { return !used[n] })
		for _, e := range m.entities {
			if l := m.lookupOf(e, name); l != nil {
				l.values = 1 + len(p.with)
			}
		}
		if !used[name] {
			delete(m.params, name)
		}
	}
}

func (m *refMap) newLookup(r *rand.Rand, name string, before []string, with int) *refLookup {
	l := &refLookup{always: oneIn(r, 2), table: "t" + strconv.Itoa(r.IntN(1<<30)), values: 1 + with}
	from := []string{"id"}
	for _, other := range before {
		lead := cmp.Or(m.leads[other], other)
		if p := m.params[lead]; p != nil && !p.optional && lead != name {
			from = append(from, other)
		}
	}
	if l.always {
		from = append(from, name)
	}
	for range 1 + r.IntN(2) {
		if by := pick(r, from); !slices.Contains(l.by, by) {
			l.by = append(l.by, by)
		}
	}
	return l
}

// close finds what an entity uses and has to declare.
func (m *refMap) close(e *refEntity) {
	var use func(name string)
	use = func(name string) {
		if p := name[0] == 'p' && name != "page"; !p || e.used[name] {
			return
		}
		e.used[name], e.declared[name] = true, true
		lead := cmp.Or(m.leads[name], name)
		use(lead)
		if l := m.lookupOf(e, lead); l != nil {
			for _, by := range l.by {
				use(by)
			}
		}
	}
	for _, list := range e.templates {
		for _, t := range list {
			eachName(t, use)
		}
	}
	for _, t := range e.as {
		eachName(t, use)
	}
	for name := range e.lookups {
		if !e.used[name] {
			delete(e.lookups, name)
		}
	}
}

func (m *refMap) lookupOf(e *refEntity, lead string) *refLookup {
	if l := e.lookups[lead]; l != nil {
		return l
	}
	return m.params[lead].lookup
}

// sharedStands reports whether the shared entry applies to an entity in addition to its lookup: it
// does not if the entity has a lookup, unless that is asked by what the row gives.
func (m *refMap) sharedStands(e *refEntity, lead string) bool {
	return e.lookups[lead] == nil || slices.Contains(e.lookups[lead].by, lead)
}

func (m *refMap) isOptional(e *refEntity, lead string) bool {
	return m.params[lead].optional && m.sharedStands(e, lead)
}

func eachName(t string, visit func(string)) {
	for _, piece := range strings.Split(t, "{")[1:] {
		name, _, _ := strings.Cut(piece, "}")
		visit(name)
	}
}

func (l *refLookup) write() string {
	columns := make([]string, len(l.by)+l.values)
	for i := range columns {
		columns[i] = "c" + strconv.Itoa(i)
	}
	return fmt.Sprintf("{by: [%s], always: %t, sql: \"SELECT %s FROM %s WHERE c IN (?)\"}", strings.Join(l.by, ", "), l.always, strings.Join(columns, ", "), l.table)
}

func (m *refMap) write() string {
	var b strings.Builder
	b.WriteString("version: 1\nlimits: {keys_per_row: 50000}\nvars: {app: shop, lang: [en, x]}\neach: {page: 1..2}\nparams:\n")
	for _, name := range slices.Sorted(maps.Keys(m.params)) {
		p := m.params[name]
		fmt.Fprintf(&b, "  %s: {", name)
		sep := ""
		add := func(format string, args ...any) {
			fmt.Fprintf(&b, sep+format, args...)
			sep = ", "
		}
		if p.optional {
			add("optional: true")
		}
		if p.fallback != nil {
			add("default: [%s]", strings.Join(p.fallback, ", "))
		}
		if len(p.with) > 0 {
			add("with: [%s]", strings.Join(p.with, ", "))
		}
		if p.lookup != nil {
			add("lookup: %s", p.lookup.write())
		}
		b.WriteString("}\n")
	}
	b.WriteString("entities:\n")
	for _, e := range m.entities {
		fmt.Fprintf(&b, "  %s:\n    params: [", e.name)
		for _, name := range slices.Sorted(maps.Keys(e.declared)) {
			b.WriteString(name + ", ")
		}
		b.WriteString("]\n    lookups: {")
		for _, name := range slices.Sorted(maps.Keys(e.lookups)) {
			fmt.Fprintf(&b, "%s: %s, ", name, e.lookups[name].write())
		}
		b.WriteString("}\n")
		if page := e.each["page"]; page != nil && e.usesPage() {
			b.WriteString("    each: {page: [7]}\n")
		}
		for _, list := range slices.Sorted(maps.Keys(e.templates)) {
			fmt.Fprintf(&b, "    %s: [\"%s\"]\n", list, strings.Join(e.templates[list], `", "`))
		}
		b.WriteString("    as: {")
		for target, id := range e.as {
			fmt.Fprintf(&b, "%s: %q, ", target, id)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func (e *refEntity) usesPage() (uses bool) {
	visit := func(name string) { uses = uses || name == "page" }
	for _, list := range e.templates {
		for _, t := range list {
			eachName(t, visit)
		}
	}
	for _, t := range e.as {
		eachName(t, visit)
	}
	return uses
}
