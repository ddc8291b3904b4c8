package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
)

// A description is the JSON that explain prints for an entity without a row. The lists are never
// null.
type description struct {
	Entity     string        `json:"entity"`
	MapVersion string        `json:"map_version"`
	Templates  []mapTemplate `json:"templates"`
	As         []aliasSource `json:"as"`
	Names      []nameSource  `json:"names"`
	Params     []string      `json:"params"` // that a row may give
	Reads      []string      `json:"reads"`  // that rows reach, some only for some values
	Repeat     []string      `json:"repeat"`
	Hold       string        `json:"hold,omitempty"`
}

type mapTemplate struct {
	Kind     string `json:"kind"`
	Template string `json:"template"`
}

type aliasSource struct {
	Entity string `json:"entity"`
	ID     string `json:"id"`
}

// A nameSource is the origin of the values of a name: row, each or lookup.
type nameSource struct {
	Name     string   `json:"name"`
	From     string   `json:"from"`
	Optional bool     `json:"optional,omitempty"`
	Values   []string `json:"values,omitempty"`
	By       []string `json:"by,omitempty"`
	SQL      string   `json:"sql,omitempty"`
	Always   bool     `json:"always,omitempty"` // the lookup runs even if the row gives it
	Default  []string `json:"default,omitempty"`
	With     []string `json:"with,omitempty"` // the names whose values go together with these
}

func describe(m *invalidation.Map, d invalidation.Description) *description {
	out := &description{
		Entity: d.Entity, MapVersion: m.Version(), Templates: []mapTemplate{}, As: []aliasSource{}, Names: []nameSource{},
		Params: append([]string{}, d.Params...), Reads: readsOf(m, d.Entity, func(string) bool { return true }),
	}
	for _, n := range d.Makes {
		out.Templates = append(out.Templates, mapTemplate{string(n.Kind), n.Text})
	}
	for _, a := range d.As {
		out.As = append(out.As, aliasSource(a))
	}
	for _, n := range d.Names {
		source := nameSource{Name: n.Name, From: "row", Optional: n.Optional, Default: n.Default, With: n.With}
		switch {
		case n.Each != nil:
			source.From, source.Values = "each", n.Each
		case n.Lookup != nil:
			source.From, source.By, source.SQL, source.Always = "lookup", n.Lookup.By, n.Lookup.SQL, n.Lookup.Always
		}
		out.Names = append(out.Names, source)
	}
	out.Repeat, out.Hold = delays(d.Repeat, d.Hold)
	return out
}

func (d *description) print(p process, asJSON bool) error {
	if asJSON {
		return output.JSON(p.Out, d)
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	for _, t := range d.Templates {
		fmt.Fprintf(w, "%s\t%s\n", t.Kind, printable(t.Template))
	}
	for _, a := range d.As {
		fmt.Fprintf(w, "as\t%s, with the id %s\n", a.Entity, printable(a.ID))
	}
	for _, read := range d.Reads {
		fmt.Fprintf(w, "read\t%s\n", read)
	}
	for _, delay := range d.Repeat {
		fmt.Fprintf(w, "repeat\t%s\n", delay)
	}
	if d.Hold != "" {
		fmt.Fprintf(w, "hold\t%s\n", d.Hold)
	}
	for _, n := range d.Names {
		fmt.Fprintf(w, "{%s}\t%s\n", n.Name, n.told())
	}
	return w.Flush()
}

// mostShown is how many values of an enumeration are shown.
const mostShown = 20

func (n *nameSource) told() string {
	switch {
	case n.Name == "id":
		return "the row's id"
	case n.From == "each" && len(n.Values) > mostShown:
		return fmt.Sprintf("each of %s and %d more", printable(strings.Join(n.Values[:mostShown], ", ")), len(n.Values)-mostShown)
	case n.From == "each":
		return "each of " + printable(strings.Join(n.Values, ", "))
	case n.Always && n.Optional:
		return "from the row, and looked up by " + n.lookup() + n.otherwise()
	case n.Always:
		return "from the row" + n.otherwise() + ", and looked up by " + n.lookup()
	case n.From == "lookup":
		return "from the row, or looked up by " + n.lookup()
	case n.Optional, n.Default != nil:
		return "from the row" + n.along() + n.otherwise()
	}
	return "from the row, which must give it" + n.along()
}

// otherwise returns what replaces a name that the row does not give.
func (n *nameSource) otherwise() string {
	switch {
	case n.Optional:
		return "; without it, what uses it makes nothing"
	case len(n.Default) > 0:
		return ", or by default " + printable(strings.Join(n.Default, ", "))
	case n.Default != nil:
		return ", or by default no value"
	}
	return ""
}

func (n *nameSource) lookup() string {
	return strings.Join(n.By, ", ") + n.along() + ": " + strings.Join(strings.Fields(n.SQL), " ")
}

// along returns the names whose values go together with these.
func (n *nameSource) along() string {
	if len(n.With) == 0 {
		return ""
	}
	return ", value by value with {" + strings.Join(n.With, "}, {") + "}"
}
