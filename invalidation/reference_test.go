package invalidation

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/unstale/unstale/protocol"
)

// A refMap is a random map. The names of its params are p0 to p9: a lookup is asked by the id, by names before its own, or by its own.
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

// sharedStands reports whether what the shared entry says beside its lookup stands for an entity: not where that has a lookup of its own,
// unless this is asked by what the row gives.
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
	b.WriteString("version: 1\nlimits: {keys_per_row: 1000000}\nvars: {app: shop, lang: [en, x]}\neach: {page: 1..2}\nparams:\n")
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

// refAnswer is what the lookup of a table finds: rows of so many values.
func refAnswer(table string, by []string, values int) (all []string) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q", table, by)
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	for range r.IntN(3) {
		for range values {
			all = append(all, pick(r, []string{"x", "y", "5", "a*"}))
		}
	}
	return all
}

// A refRow is the expansion of one row, as slow and as plain as can be.
type refRow struct {
	m    *refMap
	row  Row
	made map[string]map[string]bool
	// expands is set where it is not refused.
	expands bool
}

// names of a group, the first one first, as far as the entity uses them.
func (x *refRow) group(e *refEntity, name string) (lead string, all []string) {
	lead = cmp.Or(x.m.leads[name], name)
	for _, n := range append([]string{lead}, x.m.params[lead].with...) {
		if e.used[n] {
			all = append(all, n)
		}
	}
	return lead, all
}

var errAbsent = errors.New("absent")

func refFault(reason Reason) error { return &RowError{Reason: reason} }

// rows returns the combinations of values of a group: a map for each. The error is errAbsent for an optional one.
func (x *refRow) rows(e *refEntity, id, name string) (all []map[string]string, err error) {
	lead, names := x.group(e, name)
	p, l := x.m.params[lead], x.m.lookupOf(e, lead)
	given, most := 0, 1
	for _, n := range names {
		if v, ok := x.row.Params.Get(n); ok {
			if given++; most == 1 {
				most = len(v.Values)
			}
		}
	}
	if given > 0 && given < len(names) {
		return nil, refFault(MissingParameter)
	}
	if given > 0 {
		for i := range most {
			row := map[string]string{}
			for _, n := range names {
				v, _ := x.row.Params.Get(n)
				if len(v.Values) != 1 && len(v.Values) != most {
					return nil, refFault(BadParameter)
				}
				row[n] = v.Values[i%len(v.Values)]
			}
			all = append(all, row)
		}
		if most == 0 {
			for _, n := range names {
				if v, _ := x.row.Params.Get(n); len(v.Values) > 1 {
					return nil, refFault(BadParameter)
				}
			}
		}
	}
	itself := l != nil && slices.Contains(l.by, lead)
	if given == 0 && p.fallback != nil && x.m.sharedStands(e, lead) {
		for _, v := range p.fallback {
			all = append(all, map[string]string{lead: v})
		}
		given = 1
	}
	switch {
	case l != nil && (given > 0 && l.always || given == 0 && !itself):
		return x.lookUp(e, id, lead, names, all)
	case given == 0 && x.m.isOptional(e, lead):
		return nil, errAbsent
	case given == 0:
		return nil, refFault(MissingParameter)
	}
	return all, nil
}

func (x *refRow) lookUp(e *refEntity, id, lead string, names []string, all []map[string]string) ([]map[string]string, error) {
	l := x.m.lookupOf(e, lead)
	asked, err := x.combine(e, id, l.by, map[string][]map[string]string{lead: all})
	if err != nil {
		return nil, err
	}
	all = slices.Clone(all)
	for _, by := range asked {
		var key []string
		for _, n := range l.by {
			key = append(key, by[n])
		}
		found := refAnswer(l.table, key, l.values)
		for ; len(found) > 0; found = found[l.values:] {
			row := map[string]string{lead: found[0]}
			for i, n := range x.m.params[lead].with {
				if slices.Contains(names, n) {
					row[n] = found[1+i]
				}
			}
			all = append(all, row)
		}
	}
	return all, nil
}

// combine returns the combinations of the values of names; known are those of some groups.
func (x *refRow) combine(e *refEntity, id string, names []string, known map[string][]map[string]string) ([]map[string]string, error) {
	all := []map[string]string{{idName: id}}
	seen := map[string]bool{}
	for _, n := range names {
		var axis []map[string]string
		if e.used[n] {
			lead, _ := x.group(e, n)
			if seen[lead] {
				continue
			}
			seen[lead] = true
			var err error
			ok := false
			if axis, ok = known[lead]; !ok {
				if axis, err = x.rows(e, id, n); err != nil {
					return nil, err
				}
			}
		} else if n == idName || seen[n] {
			continue
		} else {
			seen[n] = true
			list := x.m.vars[n]
			if n == "page" {
				if list = x.m.each[n]; e.each[n] != nil {
					list = e.each[n]
				}
			}
			for _, v := range list {
				axis = append(axis, map[string]string{n: v})
			}
		}
		var next []map[string]string
		for _, a := range all {
			for _, b := range axis {
				row := map[string]string{}
				for _, from := range []map[string]string{a, b} {
					for k, v := range from {
						row[k] = v
					}
				}
				next = append(next, row)
			}
		}
		all = next
	}
	return all, nil
}

// texts returns what a template makes.
func (x *refRow) texts(e *refEntity, id, t string, pattern bool) (all []string, err error) {
	var names []string
	eachName(t, func(n string) { names = append(names, n) })
	for _, n := range names {
		if !e.used[n] {
			continue
		}
		if _, err := x.rows(e, id, n); err == errAbsent {
			return nil, nil
		} else if lead, _ := x.group(e, n); err != nil && x.m.isOptional(e, lead) {
			return nil, err
		}
	}
	choices, err := x.combine(e, id, names, nil)
	if err != nil {
		return nil, err
	}
	for _, c := range choices {
		text := t
		for _, n := range names {
			if v := c[n]; pattern && v == "" {
				return nil, refFault(BadParameter)
			} else if pattern {
				text = strings.ReplaceAll(text, "{"+n+"}", protocol.Escape(v))
			} else {
				text = strings.ReplaceAll(text, "{"+n+"}", v)
			}
		}
		all = append(all, text)
	}
	return all, nil
}

func (x *refRow) expand(e *refEntity, id string) error {
	for list, templates := range e.templates {
		into := list
		if list == "tags" {
			into = "keys"
		}
		if x.made[into] == nil {
			x.made[into] = map[string]bool{}
		}
		for _, t := range templates {
			all, err := x.texts(e, id, t, list == "patterns")
			if err != nil {
				return err
			}
			for _, text := range all {
				if list == "tags" {
					text = protocol.StampPrefix + text
				}
				x.made[into][text] = true
			}
		}
	}
	for target, t := range e.as {
		ids, err := x.texts(e, id, t, false)
		if err != nil {
			return err
		}
		for _, id := range ids {
			i, _ := strconv.Atoi(target[1:])
			if id == "" {
				return refFault(BadParameter)
			}
			if err := x.expand(x.m.entities[i], id); err != nil {
				return err
			}
		}
	}
	return nil
}

// newRefRow is a random row, and what it should expand to.
func newRefRow(r *rand.Rand, m *refMap) *refRow {
	e := pick(r, m.entities)
	row := Row{Entity: e.name, ID: pick(r, []string{"1", "x"})}
	length := r.IntN(4)
	for i := range 10 {
		if oneIn(r, 3) {
			continue
		}
		p := Param{Name: "p" + strconv.Itoa(i), List: true}
		count := length
		if oneIn(r, 3) {
			count = 1
		} else if oneIn(r, 20) {
			count = r.IntN(4)
		}
		for range count {
			if p.Values = append(p.Values, pick(r, []string{"x", "y", "z", "a*"})); oneIn(r, 200) {
				p.Values[0] = ""
			}
		}
		row.Params = append(row.Params, p)
	}
	return &refRow{m: m, row: row, made: map[string]map[string]bool{}}
}

// ask puts the answers to what the row asks, in rounds: in each those of one rank, or all.
func (x *refRow) ask(t *testing.T, m *Map, byRank bool) (*Answers, error) {
	t.Helper()
	answers, asked := &Answers{}, map[string]bool{}
	for rank := range m.Ranks() + 1 {
		needs, err := m.Needs(x.row, answers)
		if err != nil {
			return nil, err
		}
		for _, n := range needs {
			key := fmt.Sprintf("%p %s", n.Lookup, n.Key())
			switch {
			case rank == m.Ranks() || byRank && n.Lookup.Rank < rank || asked[key]:
				return nil, fmt.Errorf("round %d of %d asks the lookup of %s, of rank %d, by %q; asked before: %t", rank, m.Ranks(), n.Lookup.Param, n.Lookup.Rank, n.By, asked[key])
			case !byRank || n.Lookup.Rank == rank:
				asked[key] = true
				_, table, _ := strings.Cut(n.Lookup.SQL, " FROM ")
				table, _, _ = strings.Cut(table, " ")
				answers.Put(n, refAnswer(table, n.By, n.Lookup.Values()))
			}
		}
	}
	return answers, nil
}

func (x *refRow) check(t *testing.T, m *Map, byRank bool) error {
	t.Helper()
	var fault *RowError
	answers, err := x.ask(t, m, byRank)
	if err != nil && !errors.As(err, &fault) {
		return err
	}
	var plan Plan
	if err == nil {
		plan, err = m.Expand(x.row, answers)
	}
	e, _ := strconv.Atoi(x.row.Entity[1:])
	clear(x.made)
	switch want := x.expand(x.m.entities[e], x.row.ID); {
	case errors.Is(err, errNotRun):
		return fmt.Errorf("when nothing is asked any more: %w", err)
	case (err == nil) != (want == nil):
		return fmt.Errorf("%v, wanted %v", err, want)
	case err != nil:
		return nil
	}
	x.expands = true
	for _, one := range []struct {
		list string
		got  []string
	}{{"keys", plan.Keys}, {"patterns", plan.Patterns}, {"sets", plan.Sets}} {
		var want []string
		for text := range x.made[one.list] {
			want = append(want, text)
		}
		slices.Sort(want)
		slices.Sort(one.got)
		if !slices.Equal(one.got, want) {
			return fmt.Errorf("%s\n%q, wanted\n%q", one.list, one.got, want)
		}
	}
	return nil
}

// Random maps expand random rows to what a plain reference says, whether lookups are answered as a worker does, those of one rank in each
// round, or all that can be asked; no question is asked twice, and none is left when the rounds are over.
func TestExpandAgainstReference(t *testing.T) {
	t.Parallel()
	good, rows, refused, ranks := 0, 0, 0, 0
	for seed := range uint64(refSeeds) {
		r := rand.New(rand.NewPCG(seed, 2))
		written := newRefMap(r)
		src := written.write()
		m, err := Parse("map.yaml", []byte(src), nil)
		if err != nil {
			if !strings.Contains(err.Error(), "lookups follow each other") && !strings.Contains(err.Error(), "used nowhere") {
				t.Fatalf("%s\n%v", src, err)
			}
			continue
		}
		good++
		ranks = max(ranks, m.Ranks())
		for range 10 {
			x := newRefRow(r, written)
			for _, byRank := range []bool{true, false} {
				if err := x.check(t, m, byRank); err != nil {
					t.Fatalf("seed %d, by rank %t: %s\n%+v\n%v", seed, byRank, src, x.row, err)
				}
			}
			if rows++; !x.expands {
				refused++
			}
		}
	}
	t.Logf("%d maps, %d rows, %d of them refused, up to %d ranks", good, rows, refused, ranks)
	if good < refSeeds/3 || ranks < 4 || refused > rows*3/4 {
		t.Errorf("%d maps of %d are good, with up to %d ranks; %d of %d rows are refused", good, refSeeds, ranks, refused, rows)
	}
}

const refSeeds = 400
