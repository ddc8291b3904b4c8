package maptool

import (
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// reads are the entries of the section reads, which cases can name as in product_page(42).
type reads struct {
	entries map[string]Read
	names   []string
	vars    map[string]string
}

func readsOf(m *invalidation.Map) *reads {
	r := &reads{entries: map[string]Read{}, vars: map[string]string{}}
	for _, e := range NamesOf(m).Reads {
		r.entries[e.Name] = e
		r.names = append(r.names, e.Name)
	}
	for _, v := range m.Reads().Vars() {
		if !v.List {
			r.vars[v.Name] = v.Values[0]
		}
	}
	return r
}

var (
	callForm  = regexp.MustCompile(`^(\w+)\((.*)\)$`)
	callBegin = regexp.MustCompile(`^(\w+)\(`)
	byName    = regexp.MustCompile(`^(\w+)=(.*)$`)
)

// expand returns the names for a text in a case: the text itself or, for an entry with values, its
// key, its tag versions and its index sets. One of them must be reached. In a map
// without the section reads, all texts are names.
func (r *reads) expand(text string) (names []string, problem string) {
	call := callForm.FindStringSubmatch(text)
	if len(r.names) == 0 || call == nil {
		if begin := callBegin.FindStringSubmatch(text); begin != nil && slices.Contains(r.names, begin[1]) {
			return nil, "has no closing parenthesis; write the read in double quotes, because a comma ends a text in a YAML list"
		}
		return []string{text}, ""
	}
	e, known := r.entries[call[1]]
	if !known {
		return nil, fmt.Sprintf("is not a read of the map; %s", near.DidYouMean(call[1], r.names, "the reads are "+strings.Join(r.names, ", ")))
	}
	values, problem := valuesOf(e, call[2])
	if problem != "" {
		return nil, problem
	}
	names = append(names, r.render(e.Key, values))
	for _, tag := range e.Tags {
		names = append(names, protocol.StampKey(r.render(tag, values)))
	}
	for _, set := range e.Sets {
		names = append(names, r.render(set, values))
	}
	return names, ""
}

func (r *reads) render(t Template, values map[string]string) string {
	var b strings.Builder
	for _, p := range t {
		switch {
		case p.Hole != "":
			b.WriteString(values[p.Hole])
		case p.Var != "":
			b.WriteString(r.vars[p.Var])
		default:
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// valuesOf returns the values of an entry's holes, which are written in their order or by name.
func valuesOf(e Read, inside string) (values map[string]string, problem string) {
	var holes []string
	for _, h := range e.Holes {
		holes = append(holes, h.Name)
	}
	usage := fmt.Sprintf("write %s(%s)", e.Name, strings.Join(holes, ", "))
	in := csv.NewReader(strings.NewReader(inside))
	in.TrimLeadingSpace = true
	var given []string
	if strings.TrimSpace(inside) != "" {
		var err error
		if given, err = in.Read(); err != nil {
			return nil, "has a quote that is not closed; " + usage
		}
	}
	if len(given) != len(holes) {
		return nil, fmt.Sprintf("needs %d values and has %d; %s", len(holes), len(given), usage)
	}
	values = map[string]string{}
	for i, value := range given {
		name, value := holes[i], strings.TrimRight(value, " ")
		if named := byName.FindStringSubmatch(value); named != nil {
			name, value = named[1], named[2]
		}
		h := slices.Index(holes, name)
		_, twice := values[name]
		switch {
		case h < 0:
			return nil, fmt.Sprintf("has no value %q; %s, or name the value: %s=%s", name, usage, holes[i], value)
		case twice:
			return nil, fmt.Sprintf("gives %s twice; %s", name, usage)
		case value == "":
			return nil, fmt.Sprintf("has an empty %s; %s", name, usage)
		case e.Holes[h].Values != nil && !slices.Contains(e.Holes[h].Values, value):
			return nil, fmt.Sprintf("has %s %q, which the map does not list; %s", name, value,
				near.DidYouMean(value, e.Holes[h].Values, "use for example "+e.Holes[h].Values[0]))
		}
		values[name] = value
	}
	return values, ""
}
