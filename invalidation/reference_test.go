package invalidation_test

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// refAnswer returns what the lookup of a table finds: rows of so many values.
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
	row  invalidation.Row
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

func refFault(reason invalidation.Reason) error { return &invalidation.RowError{Reason: reason} }

// rows returns the combinations of values of a group: a map for each. The error is errAbsent for an
// optional one.
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
		return nil, refFault(invalidation.MissingParameter)
	}
	if given > 0 {
		for i := range most {
			row := map[string]string{}
			for _, n := range names {
				v, _ := x.row.Params.Get(n)
				if len(v.Values) != 1 && len(v.Values) != most {
					return nil, refFault(invalidation.BadParameter)
				}
				row[n] = v.Values[i%len(v.Values)]
			}
			all = append(all, row)
		}
		if most == 0 {
			for _, n := range names {
				if v, _ := x.row.Params.Get(n); len(v.Values) > 1 {
					return nil, refFault(invalidation.BadParameter)
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
		return nil, refFault(invalidation.MissingParameter)
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

// combine returns the combinations of the values of names; known has the values of some groups.
func (x *refRow) combine(e *refEntity, id string, names []string, known map[string][]map[string]string) ([]map[string]string, error) {
	all := []map[string]string{{"id": id}}
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
		} else if n == "id" || seen[n] {
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
				return nil, refFault(invalidation.BadParameter)
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
				return refFault(invalidation.BadParameter)
			}
			if err := x.expand(x.m.entities[i], id); err != nil {
				return err
			}
		}
	}
	return nil
}

// newRefRow returns a random row, and what it should expand to.
func newRefRow(r *rand.Rand, m *refMap) *refRow {
	e := pick(r, m.entities)
	row := invalidation.Row{Entity: e.name, ID: pick(r, []string{"1", "x"})}
	length := r.IntN(4)
	for i := range 10 {
		if oneIn(r, 3) {
			continue
		}
		p := invalidation.Param{Name: "p" + strconv.Itoa(i), List: true}
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

// ask puts the answers to the needs of the row, in rounds: each with one rank, or with all.
func (x *refRow) ask(t *testing.T, m *invalidation.Map, byRank bool) (*invalidation.Answers, error) {
	t.Helper()
	answers, asked := &invalidation.Answers{}, map[string]bool{}
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

func (x *refRow) check(t *testing.T, m *invalidation.Map, byRank bool) error {
	t.Helper()
	var fault *invalidation.RowError
	answers, err := x.ask(t, m, byRank)
	if err != nil && !errors.As(err, &fault) {
		return err
	}
	var plan invalidation.Plan
	if err == nil {
		plan, err = m.Expand(x.row, answers)
	}
	e, _ := strconv.Atoi(x.row.Entity[1:])
	clear(x.made)
	switch want := x.expand(x.m.entities[e], x.row.ID); {
	case errors.Is(err, invalidation.ErrNotRun):
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

// Random maps expand random rows to the result of a simple reference. Lookups are answered rank by
// rank, as a worker does, or all that can be asked. No question is asked twice, and none is left
// after the rounds.
func TestExpandAgainstReference(t *testing.T) {
	t.Parallel()
	good, rows, refused, ranks := 0, 0, 0, 0
	for seed := range uint64(refSeeds) {
		r := rand.New(rand.NewPCG(seed, 2))
		written := newRefMap(r)
		src := written.write()
		m, err := invalidation.Parse("map.yaml", []byte(src), nil)
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
