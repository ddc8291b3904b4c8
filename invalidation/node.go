package invalidation

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A scalar is one text of the map with its place, character by character: 010 stays 010.
type scalar struct {
	text string
	at   place
	// given is false where the map does not have it, or has something there that was reported
	// already.
	given bool
}

// A decoder reads YAML nodes strictly: what it does not expect is a fault.
type decoder struct{ *report }

const (
	problemAlias = "aliases (*) are not supported"
	cureAlias    = "write the value out where it is needed"
)

func placeOf(n *yaml.Node) place { return place{n.Line, n.Column} }

// usable reports what no node may have, and returns whether n can be read further.
func (d *decoder) usable(n *yaml.Node) bool {
	at := placeOf(n)
	if n.Kind == yaml.AliasNode {
		d.addFault(at, "*"+n.Value, problemAlias, cureAlias)
		return false
	}
	if n.Anchor != "" {
		d.addFault(at, "&"+n.Anchor, "anchors (&) are not supported", cureAlias)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		d.addFault(at, n.Tag, "tags (!) are not supported", "remove the tag: every value is taken as it is written")
	}
	return true
}

// wrongKind reports that n is not what it should be.
func (d *decoder) wrongKind(n *yaml.Node, name, want, cure string) {
	text, is := "", "text"
	switch {
	case n.Kind == yaml.MappingNode:
		is = "a mapping"
	case n.Kind == yaml.SequenceNode:
		is = "a list"
	case n.Value == "":
		is = "empty"
	default:
		text = n.Value
	}
	d.addFault(placeOf(n), text, name+" must be "+want+", and it is "+is, cure)
}

// scalarOf reads a scalar. name is its name in a fault.
func (d *decoder) scalarOf(n *yaml.Node, name string) scalar {
	if !d.usable(n) {
		return scalar{}
	}
	if n.Kind != yaml.ScalarNode {
		cure := "write one value, in double quotes if it has any of {}[]:#*&!"
		if template := unquoted(n); template != "" {
			cure = "put the template in double quotes: " + strconv.Quote(template)
		}
		d.wrongKind(n, name, "text", cure)
		return scalar{}
	}
	return scalar{text: n.Value, at: placeOf(n), given: true}
}

// unquoted returns the template that YAML took for a mapping, such as {id}, or "" where n does not
// look like one.
func unquoted(n *yaml.Node) string {
	if n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle == 0 || len(n.Content) != 2 || n.Content[1].Tag != "!!null" || n.Content[1].Value != "" {
		return ""
	}
	name := n.Content[0].Value
	if n.Content[0].Kind == yaml.MappingNode {
		name = unquoted(n.Content[0])
	}
	if name == "" {
		return ""
	}
	return "{" + name + "}"
}

// scalarsOf reads a list of scalars.
func (d *decoder) scalarsOf(n *yaml.Node, name, example string) []scalar {
	if !d.usable(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		d.wrongKind(n, name, "a list", "write it like "+example)
		return nil
	}
	var all []scalar
	for _, item := range n.Content {
		if s := d.scalarOf(item, "an entry of "+name); s.given {
			all = append(all, s)
		}
	}
	return all
}

// An entry is one key of a mapping and its value.
type entry struct {
	key     scalar
	value   *yaml.Node
	comment string // above the key, without #
}

// entries reads a mapping, and returns nil only if n is none. Keys that are given twice or that are
// not text are left out.
func (d *decoder) entries(n *yaml.Node, name, example string) []entry {
	if !d.usable(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.wrongKind(n, name, "a mapping", "write it like "+example)
		return nil
	}
	all := []entry{}
	seen := map[string]place{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !d.goodKey(key) {
			continue
		}
		first, twice := seen[key.Value]
		if twice {
			d.addFault(placeOf(key), key.Value, "given twice in "+name+", first in line "+strconv.Itoa(first.line), "remove one of the two")
			continue
		}
		seen[key.Value] = placeOf(key)
		all = append(all, entry{scalar{key.Value, placeOf(key), true}, n.Content[i+1], commentOf(key)})
	}
	return all
}

// commentOf returns the text of the comment above a key.
func commentOf(key *yaml.Node) string {
	lines := strings.Split(key.HeadComment, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.TrimLeft(line, "#"))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func (d *decoder) goodKey(key *yaml.Node) bool {
	switch {
	case !d.usable(key):
		return false
	case key.Kind != yaml.ScalarNode:
		d.addFault(placeOf(key), "", "a key must be text, and this is a mapping or a list", "put a template in double quotes; otherwise write a name")
		return false
	case key.Tag == "!!merge":
		d.addFault(placeOf(key), key.Value, "merge keys (<<) are not supported", "write the fields out where they are needed")
		return false
	case key.Tag != "!!str" && key.Style&yaml.TaggedStyle == 0:
		d.addFault(placeOf(key), key.Value, "a key must be text, and YAML reads this as "+strings.TrimPrefix(key.Tag, "!!"), "write a name that starts with a letter")
		return false
	}
	return true
}

// A field is a field of a mapping, and what reads its value.
type field struct {
	name string
	read func(*yaml.Node)
}

// text returns a field whose value is one text.
func (d *decoder) text(name string, into *scalar) field {
	return field{name, func(n *yaml.Node) { *into = d.scalarOf(n, name) }}
}

// A fieldSet is the known fields of a mapping that exist, even if they are unreadable; nil where
// something else than a mapping was reported.
type fieldSet map[string]bool

// lacks reports whether a mapping is without a field.
func (s fieldSet) lacks(name string) bool { return s != nil && !s[name] }

// fields reads a mapping with known fields. It reports a misspelt field and then reads it as the
// most similar one, so that it finds the faults inside too.
func (d *decoder) fields(n *yaml.Node, name, example string, known ...field) fieldSet {
	all := d.entries(n, name, example)
	if all == nil {
		return nil
	}
	names := make([]string, len(known))
	for i := range known {
		names[i] = known[i].name
	}
	given, have := make(map[string]bool, len(all)), fieldSet{}
	for _, e := range all {
		given[e.key.text] = true
	}
	for _, e := range all {
		meant := e.key.text
		if !slices.Contains(names, meant) {
			d.addFault(e.key.at, meant, "unknown field of "+name, d.didYouMean(meant, names, "the fields are "+quoteList(names)))
			if meant = d.nearest(meant, names); given[meant] {
				continue
			}
		}
		if i := slices.Index(names, meant); i >= 0 {
			have[meant] = true
			known[i].read(e.value)
		}
	}
	return have
}
