package invalidation

import "go.yaml.in/yaml/v3"

const (
	exampleReads   = `{product_page: {key: "shop:product:{product_id}", ttl: 5m..15m}}`
	exampleExpires = `{only: "another service changes the weather"}`
	exampleRead    = `{key: "shop:product:{product_id}", ttl: 5m..15m}`
)

// A readPart is an entry of the section reads.
type readPart struct {
	name, key        scalar
	comment          string
	tags, sets, from []scalar
	each             []eachPart
	of               []namedScalar
	ttl, stale, staleOnError, negative, sliding,
	earlyRefresh, memory scalar
	only           scalar // the reason of expires
	hasKey, hasTTL bool
}

// A readDecoder decodes the section reads.
type readDecoder struct{ in *decoder }

func (r *readDecoder) reads(n *yaml.Node) []readPart {
	d := r.in
	var all []readPart
	entries, _ := d.entries(n, "reads", exampleReads)
	for _, e := range entries {
		p := readPart{name: e.key, comment: e.comment}
		text := func(name string, into *scalar) field {
			return field{name, func(n *yaml.Node) { *into = d.text(n, name) }}
		}
		if !d.fields(e.value, "the read "+e.key.text, exampleRead,
			field{"key", func(n *yaml.Node) { p.key, p.hasKey = d.text(n, "key"), true }},
			field{"ttl", func(n *yaml.Node) { p.ttl, p.hasTTL = d.text(n, "ttl"), true }},
			text("stale", &p.stale), text("stale_on_error", &p.staleOnError), text("negative", &p.negative),
			text("sliding", &p.sliding), text("early_refresh", &p.earlyRefresh), text("memory", &p.memory),
			field{"tags", func(n *yaml.Node) { p.tags = d.filledList(n, "tags", `["category:{category_id}"]`) }},
			field{"sets", func(n *yaml.Node) { p.sets = d.filledList(n, "sets", `["shop:category:{category_id}:pages"]`) }},
			field{"from", func(n *yaml.Node) { p.from = d.filledList(n, "from", "[product, category]") }},
			field{"each", func(n *yaml.Node) { p.each = d.each(n) }},
			field{"of", func(n *yaml.Node) { p.of = d.namedScalars(n, "of", "{pid: product}") }},
			field{"expires", func(n *yaml.Node) {
				d.fields(n, "expires", exampleExpires, field{"only", func(n *yaml.Node) { p.only = d.text(n, "only") }})
			}},
		) {
			p.hasKey, p.hasTTL = true, true
		}
		all = append(all, p)
	}
	return all
}
