package maptool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/unstale/unstale/internal/near"
	"github.com/unstale/unstale/invalidation"
)

// A file is the content of a file of cases.
type file struct {
	Cases []Case
}

// A Case is one row with its expected effects.
type Case struct {
	Name text
	Row  row
	// Lookups are the results of the lookup of each parameter.
	Lookups map[string]values
	// Reaches are keys or reads that the row must reach, Spares those that it must not reach.
	Reaches, Spares values
	// Refused is the expected reason if the row must be refused.
	Refused text
}

// A row is an outbox row as an application would insert it.
type row struct {
	Entity, ID text
	Params     map[string]values
}

// A text is a scalar in its source form: 010 stays 010.
type text struct {
	Value string
	Line  int
}

// UnmarshalYAML reads a scalar.
func (t *text) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: wanted one text; write it in double quotes", n.Line)
	}
	*t = text{n.Value, n.Line}
	return nil
}

// Values are one scalar or a list of them. A null is not given, since the decoder reports no null
// to the types.
type values struct {
	texts       []string
	lines       []int // of each
	given, list bool
	line        int
}

// UnmarshalYAML reads a scalar or a list.
func (v *values) UnmarshalYAML(n *yaml.Node) error {
	*v = values{given: true, line: n.Line}
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items, v.list = n.Content, true
	}
	for _, item := range items {
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return fmt.Errorf("line %d: wanted a text, or a list of texts", item.Line)
		}
		v.texts, v.lines = append(v.texts, item.Value), append(v.lines, item.Line)
	}
	return nil
}

// The decoder's messages about Go types.
var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S*\.(\S+)`)
	intoType     = regexp.MustCompile(` into \S+$`)
)

// ReadCases reads cases. The error has line numbers.
func ReadCases(src []byte) ([]Case, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(src))
	decoder.KnownFields(true)
	var f file
	err := decoder.Decode(&f)
	if errors.Is(err, io.EOF) || err == nil && len(f.Cases) == 0 {
		return nil, errors.New(`there are no cases; write cases: [{row: {entity: product, id: 42}, reaches: ["shop:product:42"]}]`)
	}
	if err != nil {
		return nil, plain(err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("wanted one document; remove the --- and what follows it")
	}
	var errs []error
	for i := range f.Cases {
		errs = append(errs, f.Cases[i].check(i))
	}
	return f.Cases, errors.Join(errs...)
}

// plain rewrites the decoder's message in the terms of the file.
func plain(err error) error {
	said := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	if several := (*yaml.TypeError)(nil); errors.As(err, &several) {
		said = several.Errors
	}
	for i := range said {
		said[i] = unknownField.ReplaceAllStringFunc(said[i], func(text string) string {
			found := unknownField.FindStringSubmatch(text)
			return strings.TrimSuffix("unknown field "+found[1]+"; "+near.DidYouMean(found[1], fields[found[2]], ""), "; ")
		})
		said[i] = intoType.ReplaceAllString(said[i], " here")
	}
	return errors.New(strings.Join(said, "\n"))
}

// fields lists the fields of each type of a file.
var fields = map[string][]string{
	"file": {"cases"}, "Case": {"name", "row", "lookups", "reaches", "spares", "refused"}, "row": {"entity", "id", "params"},
}

// Line returns the line of a case in its file, or 0.
func (c *Case) Line() int {
	lines := []int{c.Name.Line, c.Row.Entity.Line, c.Row.ID.Line, c.Refused.Line}
	lines = slices.DeleteFunc(lines, func(n int) bool { return n == 0 })
	if len(lines) == 0 {
		return 0
	}
	return slices.Min(lines)
}

func (c *Case) check(n int) error {
	fail := func(what string) error { return fmt.Errorf("line %d: case %d %s", c.Line(), n+1, what) }
	switch {
	case c.Row.Entity.Value == "":
		return fail("has no entity; write row: {entity: product, id: 42}")
	case len(c.Reaches.texts)+len(c.Spares.texts) == 0 && c.Refused.Value == "":
		return fail("expects nothing; give it reaches, spares or refused")
	case len(c.Reaches.texts)+len(c.Spares.texts) > 0 && c.Refused.Value != "":
		return fail("is refused and reaches or spares something; a row that is refused makes nothing")
	}
	if r := c.Refused.Value; r != "" && !slices.Contains(refusals, r) {
		return fail(fmt.Sprintf("must be refused for %q, which is not a reason of a map; %s", r, near.DidYouMean(r, refusals, fmt.Sprintf("the reasons are %v", refusals))))
	}
	return nil
}

// refusals are the reasons of a map for refusing a row.
var refusals = []string{
	string(invalidation.UnknownEntity), string(invalidation.MissingParameter), string(invalidation.BadParameter),
	string(invalidation.TooManyKeys), string(invalidation.PatternTooWide),
}

// written returns the case's row.
func (c *Case) written() invalidation.Row {
	row := invalidation.Row{Entity: c.Row.Entity.Value, ID: c.Row.ID.Value}
	for name, v := range c.Row.Params {
		if v.given {
			row.Params = append(row.Params, invalidation.Param{Name: name, Values: v.texts, List: v.list})
		}
	}
	slices.SortFunc(row.Params, func(a, b invalidation.Param) int { return strings.Compare(a.Name, b.Name) })
	return row
}

func (c *Case) title() string {
	if c.Name.Value != "" {
		return c.Name.Value
	}
	return strings.TrimSpace(c.Row.Entity.Value + " " + c.Row.ID.Value)
}
