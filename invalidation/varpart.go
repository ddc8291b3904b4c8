package invalidation

import "go.yaml.in/yaml/v3"

// A varPart is a name with a value, with a list of them, or with the environment variable that has
// it.
type varPart struct {
	name    scalar
	values  []scalar
	list    bool
	fromEnv *fromEnvPart
}

// A fromEnvPart is a required environment variable, and the values that it may have.
type fromEnvPart struct {
	from  scalar
	oneOf []scalar
}

// A varDecoder decodes the section vars.
type varDecoder struct{ in *decoder }

func (v *varDecoder) vars(n *yaml.Node) []varPart {
	d := v.in
	var all []varPart
	entries, _ := d.entries(n, "vars", exampleVars)
	for _, e := range entries {
		p := varPart{name: e.key} // one whose value cannot be read is known all the same
		switch p.list = e.value.Kind == yaml.SequenceNode; {
		case p.list:
			p.values = d.filledList(e.value, "the var "+e.key.text, "[en, de]")
		case e.value.Kind == yaml.MappingNode && unquoted(e.value) == "":
			p.fromEnv = v.fromEnv(e)
		default:
			p.values = []scalar{d.text(e.value, e.key.text)}
		}
		all = append(all, p)
	}
	return all
}

func (v *varDecoder) fromEnv(e entry) *fromEnvPart {
	d := v.in
	p := &fromEnvPart{}
	var hasFrom bool
	if d.fields(e.value, "the var "+e.key.text, exampleFromEnv,
		field{"from", func(n *yaml.Node) { p.from, hasFrom = d.text(n, "from"), true }},
		field{"one_of", func(n *yaml.Node) { p.oneOf = d.filledList(n, "one_of", "[dev, staging, prod]") }},
	) && !hasFrom {
		d.add(placeOf(e.value), e.key.text, "the var names no environment variable", "write it like "+exampleFromEnv)
	}
	return p
}
