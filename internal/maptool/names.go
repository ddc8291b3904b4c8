// Package maptool has what only "unstale map" does. It checks a map by cases: rows, and the keys that
// they must and must not reach. It describes the names of a map for generators of code, and
// generates Go, TypeScript and PHP.
package maptool

import (
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// Names are the names of a map, for generators: `unstale map describe --json` prints them. Lists
// are never null.
type Names struct {
	// Hash identifies the section reads, without the values of vars.
	Hash     string   `json:"hash"`
	Vars     []Var    `json:"vars"`
	Reads    []Read   `json:"reads"`
	Entities []Entity `json:"entities"`
}

// A Var is a var that reads use.
type Var struct {
	Name string `json:"name"`
	// Text is the value as written, with ${NAME} and ${NAME:-default}; empty for a list.
	Text string `json:"text,omitempty"`
	// Values are the values of a list.
	Values []string `json:"values,omitempty"`
	OneOf  []string `json:"one_of,omitempty"`
	// Unknown reports that the values of a list depend on the environment.
	Unknown bool `json:"unknown,omitempty"`
}

// A Read is an entry of the section reads. Times are milliseconds; 0 means not given, and -1 off.
type Read struct {
	Name         string     `json:"name"`
	Comment      string     `json:"comment,omitempty"`
	Key          Template   `json:"key"`
	Tags         []Template `json:"tags"`
	Sets         []Template `json:"sets"`
	Holes        []Hole     `json:"holes"`
	From         []string   `json:"from"`
	ExpiresOnly  string     `json:"expires_only,omitempty"`
	Least        int64      `json:"ttl_min_ms"`
	Most         int64      `json:"ttl_max_ms"`
	Stale        int64      `json:"stale_ms"`
	StaleOnError int64      `json:"stale_on_error_ms"`
	Negative     int64      `json:"negative_ms"`
	SlidingMax   int64      `json:"sliding_ms"`
	EarlyRefresh float64    `json:"early_refresh"`
	SkipMemory   bool       `json:"skip_memory"`
}

// A Template is a sequence of parts, each of which has exactly one field.
type Template []Part

// A Part is literal text, a var or a hole.
type Part struct {
	Text string `json:"text,omitempty"`
	Var  string `json:"var,omitempty"`
	Hole string `json:"hole,omitempty"`
}

// A Hole is a value that the reader gives.
type Hole struct {
	Name   string                 `json:"name"`
	Type   invalidation.ValueType `json:"type"`
	Values []string               `json:"values,omitempty"` // all that it can have, if they are known
}

// An Entity is an entity of the map, with the values that its rows can give.
type Entity struct {
	Name    string                 `json:"name"`
	Comment string                 `json:"comment,omitempty"`
	Type    invalidation.ValueType `json:"type"` // of the ID
	Params  []Param                `json:"params"`
}

// A Param is a value that a row may give.
type Param struct {
	Name     string                 `json:"name"`
	Type     invalidation.ValueType `json:"type"`
	Required bool                   `json:"required"`
	With     []string               `json:"with,omitempty"` // params whose values go together with these
}

// NamesOf returns the names of a map.
func NamesOf(m *invalidation.Map) *Names {
	n := &Names{Hash: m.Reads().Hash(), Vars: []Var{}, Reads: []Read{}, Entities: []Entity{}}
	lists := map[string][]string{}
	vars := map[string]bool{}
	for _, v := range m.Reads().Vars() {
		out := Var{Name: v.Name, OneOf: v.OneOf}
		if vars[v.Name] = true; v.List {
			out.Values, lists[v.Name] = v.Values, v.Values
			out.Unknown = strings.Contains(strings.Join(v.Texts, ""), "${")
		} else {
			out.Text = v.Texts[0]
		}
		n.Vars = append(n.Vars, out)
	}
	for _, r := range m.Reads().All() {
		n.Reads = append(n.Reads, readOf(r, vars, lists))
	}
	for _, name := range m.Entities() {
		d, _ := m.Describe(name)
		n.Entities = append(n.Entities, entityOf(m, d))
	}
	return n
}

func readOf(r invalidation.Read, vars map[string]bool, lists map[string][]string) Read {
	l := r.Lifetime
	out := Read{
		Name: r.Name, Comment: r.Comment, From: append([]string{}, r.From...), ExpiresOnly: r.ExpiresOnly,
		Tags: []Template{}, Sets: []Template{}, Holes: []Hole{},
		Least: l.Least.Milliseconds(), Most: l.Most.Milliseconds(), StaleOnError: l.StaleOnError.Milliseconds(),
		Stale: orOff(l.Stale), Negative: orOff(l.Negative), SlidingMax: l.SlidingMax.Milliseconds(),
		EarlyRefresh: l.EarlyRefresh, SkipMemory: l.SkipMemory,
	}
	for _, h := range r.Holes {
		out.Holes = append(out.Holes, Hole{h.Name, h.Type, h.Values})
	}
	template := func(text string) (t Template) {
		for _, s := range invalidation.SplitTemplate(text) {
			switch {
			case s.Name == "":
				t = append(t, Part{Text: s.Text})
			case vars[s.Name] && lists[s.Name] == nil:
				t = append(t, Part{Var: s.Name})
			default: // the reader chooses among the values of a list
				if lists[s.Name] != nil && !slices.ContainsFunc(out.Holes, func(h Hole) bool { return h.Name == s.Name }) {
					out.Holes = append(out.Holes, Hole{s.Name, invalidation.TypeText, lists[s.Name]})
				}
				t = append(t, Part{Hole: s.Name})
			}
		}
		return t
	}
	out.Key = template(r.Key)
	for _, tag := range r.Tags {
		out.Tags = append(out.Tags, template(tag))
	}
	for _, set := range r.Sets {
		out.Sets = append(out.Sets, template(set))
	}
	return out
}

func entityOf(m *invalidation.Map, d invalidation.Description) Entity {
	e := Entity{Name: d.Entity, Comment: d.Comment, Type: m.Reads().TypeOf(d.Entity + "_id"), Params: []Param{}}
	for _, name := range d.Params {
		p := Param{Name: name, Type: m.Reads().TypeOf(name)}
		if source, ok := sourceOf(m, d, name); ok {
			p.Required = source.Each == nil && source.Lookup == nil && source.Default == nil && !source.Optional && needs(m, d, name)
			p.With = source.With
		}
		e.Params = append(e.Params, p)
	}
	return e
}

// needs reports whether each row of an entity makes something of a param, also as another entity. A
// template that also uses a name which a row may leave out makes nothing of such a row.
func needs(m *invalidation.Map, d invalidation.Description, name string) bool {
	uses := func(template string) (used, always bool) {
		always = true
		for _, part := range invalidation.SplitTemplate(template) {
			used = used || part.Name == name
			always = always && !slices.ContainsFunc(d.Names, func(s invalidation.NameSource) bool { return s.Name == part.Name && s.Optional })
		}
		return used && always, always
	}
	for _, made := range d.Makes {
		if used, _ := uses(made.Text); used {
			return true
		}
	}
	for _, as := range d.As {
		used, always := uses(as.ID)
		if used {
			return true
		}
		if target, ok := m.Describe(as.Entity); ok && always && needs(m, target, name) {
			return true
		}
	}
	return false
}

// sourceOf returns the source of a param of an entity, or of an entity as which its rows expand.
func sourceOf(m *invalidation.Map, d invalidation.Description, name string) (invalidation.NameSource, bool) {
	for _, source := range d.Names {
		if source.Name == name {
			return source, true
		}
	}
	for _, as := range d.As {
		if target, ok := m.Describe(as.Entity); ok {
			if source, ok := sourceOf(m, target, name); ok {
				return source, true
			}
		}
	}
	return invalidation.NameSource{}, false
}

// orOff returns milliseconds, and -1 for a feature that is off.
func orOff(d time.Duration) int64 {
	if d == invalidation.Off {
		return -1
	}
	return d.Milliseconds()
}

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
