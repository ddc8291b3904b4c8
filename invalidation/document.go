package invalidation

import (
	"go.yaml.in/yaml/v3"
)

// A document is a map as it is written: decoded, but not understood.
type document struct {
	at       place // of its first key
	version  scalar
	vars     []varPart
	each     []eachPart
	publish  publishPart
	lease    scalar
	limits   limitsPart
	params   []paramPart
	entities []entityPart
	captures []capturePart
	reads    []readPart
	types    []namedScalar
	// nameAdvice is off where the map refuses advice about names.
	nameAdvice scalar
	has        fieldSet
}

type namedScalar struct{ name, value scalar }

type publishPart struct{ channel, format scalar }

type limitsPart struct{ params, keysPerRow, patternPrefix scalar }

// A paramPart is an entry of the shared params, or of the lookups of an entity.
type paramPart struct {
	name     scalar
	optional scalar
	fallback []scalar // the values of default
	with     []scalar
	lookup   *lookupPart
	has      fieldSet
	// unclearWith is set if the field with is unreadable.
	unclearWith bool
}

type lookupPart struct {
	at     place
	by     []scalar
	sql    scalar
	always scalar
	has    fieldSet
}

type entityPart struct {
	name    scalar
	comment string
	params  []scalar
	lookups []paramPart
	each    []eachPart
	as      []namedScalar
	keys, patterns, sets, tags,
	repeat []scalar
	hold, everything scalar
	// readable is false where the entity is not a mapping.
	readable bool
	// filled is set where it has something that invalidates, though perhaps unreadable.
	filled bool
}

// A capturePart is the capture of the changes of one table. A table can have several.
type capturePart struct {
	at                place
	table, entity, id scalar
	watch, on         []scalar
	params            []namedScalar
	ignored           []namedScalar // keys of cascades
	cascades, onError scalar
	has               fieldSet
}

// An eachPart is a name with a range, or with a list of values.
type eachPart struct {
	name   scalar
	values []scalar
	span   scalar
}

const (
	exampleRoot     = "version: 1, then entities:"
	exampleVars     = `{app: shop, env: {from: APP_ENV, one_of: [dev, staging, prod]}, locales: [en, de]}`
	exampleFromEnv  = "{from: APP_ENV, one_of: [dev, staging, prod]}"
	examplePublish  = `{channel: "cache:invalidate", format: event}`
	exampleLimits   = "{params: 64KiB, keys_per_row: 10000, pattern_prefix: 8}"
	exampleParams   = "{category_id: {optional: true}}"
	exampleLookup   = `{by: [id], sql: "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"}`
	exampleEntities = `{product: {keys: ["shop:product:{id}"]}}`
	exampleEntity   = `{keys: ["shop:product:{id}"]}`
	exampleNames    = "[product_id, category_id]"
	exampleEach     = "{n: 1..20, sort: [new, price]}"
	exampleAs       = `{product: "{product_id}"}`
	exampleTemplate = `["shop:product:{id}"]`
	exampleRepeat   = "[2s]"
)

// decodeDocument reads the root node of a map.
func decodeDocument(d *decoder, root *yaml.Node) *document {
	doc := &document{at: placeOf(root)}
	doc.has = d.fields(root, "the map", exampleRoot,
		d.text("version", &doc.version),
		field{"vars", func(n *yaml.Node) { doc.vars = (&varDecoder{d}).vars(n) }},
		field{"each", func(n *yaml.Node) { doc.each = d.each(n) }},
		field{"publish", func(n *yaml.Node) {
			d.fields(n, "publish", examplePublish, d.text("channel", &doc.publish.channel), d.text("format", &doc.publish.format))
		}},
		d.text("lease", &doc.lease),
		field{"limits", func(n *yaml.Node) {
			d.fields(n, "limits", exampleLimits,
				d.text("params", &doc.limits.params), d.text("keys_per_row", &doc.limits.keysPerRow), d.text("pattern_prefix", &doc.limits.patternPrefix))
		}},
		field{"params", func(n *yaml.Node) { doc.params = d.params(n) }},
		field{"entities", func(n *yaml.Node) { doc.entities = d.entities(n) }},
		field{"capture", func(n *yaml.Node) { doc.captures = d.captures(n) }},
		field{"reads", func(n *yaml.Node) { doc.reads = (&readDecoder{d}).reads(n) }},
		field{"types", func(n *yaml.Node) { doc.types = d.namedScalars(n, "types", exampleTypes) }},
		d.text("name_advice", &doc.nameAdvice),
	)
	return doc
}

func (d *decoder) namedScalars(n *yaml.Node, name, example string) []namedScalar {
	var all []namedScalar
	for _, e := range d.entries(n, name, example) {
		// A name whose value cannot be read is known all the same.
		all = append(all, namedScalar{e.key, d.scalarOf(e.value, e.key.text)})
	}
	return all
}

func (d *decoder) params(n *yaml.Node) []paramPart {
	var all []paramPart
	for _, e := range d.entries(n, "params", exampleParams) {
		p := paramPart{name: e.key}
		p.has = d.fields(e.value, "the param "+e.key.text, "{optional: true}",
			field{"lookup", func(n *yaml.Node) { p.lookup = d.lookup(n) }},
			d.text("optional", &p.optional),
			field{"default", func(n *yaml.Node) { p.fallback = d.values(n, "default") }},
			field{"with", func(n *yaml.Node) {
				p.with = d.filledList(n, "with", "[currency]")
				p.unclearWith = n.Kind != yaml.SequenceNode || len(p.with) < len(n.Content)
			}},
		)
		all = append(all, p)
	}
	return all
}

// values reads one scalar or a list of them. A null, which in a row means that it gives nothing, is
// none of them.
func (d *decoder) values(n *yaml.Node, name string) []scalar {
	if n.Kind == yaml.SequenceNode {
		return d.scalarsOf(n, name, "[en, de]")
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		d.addFault(placeOf(n), n.Value, name+" is null", "remove it, or put the text in double quotes")
		return nil
	}
	if s := d.scalarOf(n, name); s.given {
		return []scalar{s}
	}
	return nil
}

func (d *decoder) lookups(n *yaml.Node) []paramPart {
	var all []paramPart
	for _, e := range d.entries(n, "lookups", "{product_id: "+exampleLookup+"}") {
		all = append(all, paramPart{name: e.key, lookup: d.lookup(e.value)})
	}
	return all
}

func (d *decoder) lookup(n *yaml.Node) *lookupPart {
	l := &lookupPart{at: placeOf(n)}
	l.has = d.fields(n, "lookup", exampleLookup,
		field{"by", func(n *yaml.Node) {
			l.by = d.scalarsOf(n, "by", "[id]")
			if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
				d.addFault(placeOf(n), "[]", "the lookup is asked by nothing", "name what it is asked by: by: [id]")
			}
		}},
		d.text("sql", &l.sql),
		d.text("always", &l.always),
	)
	return l
}

func (d *decoder) entities(n *yaml.Node) []entityPart {
	var all []entityPart
	entries := d.entries(n, "entities", exampleEntities)
	if entries != nil && len(n.Content) == 0 {
		d.addFault(placeOf(n), "{}", "the map has no entity", "write what can change, such as "+exampleEntities)
	}
	for _, e := range entries {
		all = append(all, d.entity(e))
	}
	return all
}

func (d *decoder) entity(e entry) entityPart {
	p := entityPart{name: e.key, comment: e.comment}
	templates := func(name string, into *[]scalar) field {
		return field{name, func(n *yaml.Node) {
			*into = d.scalarsOf(n, name, exampleTemplate)
			p.filled = p.filled || n.Kind != yaml.SequenceNode || len(n.Content) > 0
		}}
	}
	has := d.fields(e.value, "the entity "+e.key.text, exampleEntity,
		field{"params", func(n *yaml.Node) { p.params = d.scalarsOf(n, "params", exampleNames) }},
		field{"lookups", func(n *yaml.Node) { p.lookups = d.lookups(n) }},
		field{"each", func(n *yaml.Node) { p.each = d.each(n) }},
		field{"as", func(n *yaml.Node) { p.as, p.filled = d.namedScalars(n, "as", exampleAs), true }},
		templates("keys", &p.keys),
		templates("patterns", &p.patterns),
		templates("sets", &p.sets),
		templates("tags", &p.tags),
		field{"repeat", func(n *yaml.Node) { p.repeat = d.scalarsOf(n, "repeat", exampleRepeat) }},
		d.text("hold", &p.hold),
		d.text("everything", &p.everything),
	)
	p.readable = has != nil
	return p
}

// captures reads a mapping of tables, each with one capture or a list of them.
func (d *decoder) captures(n *yaml.Node) []capturePart {
	var all []capturePart
	for _, e := range d.entries(n, "capture", exampleCapture) {
		if e.value.Kind != yaml.SequenceNode {
			all = append(all, d.capture(e.key, e.key.at, e.value))
			continue
		}
		if d.usable(e.value) && len(e.value.Content) == 0 {
			d.addFault(placeOf(e.value), "[]", "the table "+e.key.text+" has no capture", "write one like "+exampleCapture+", or remove the table")
		}
		for _, item := range e.value.Content {
			all = append(all, d.capture(e.key, placeOf(item), item))
		}
	}
	return all
}

func (d *decoder) capture(table scalar, at place, n *yaml.Node) capturePart {
	p := capturePart{table: table, at: at}
	p.has = d.fields(n, "the capture of "+table.text, "{entity: product, id: id}",
		d.text("entity", &p.entity),
		d.text("id", &p.id),
		field{"watch", func(n *yaml.Node) { p.watch = d.filledList(n, "watch", "[name, price]") }},
		field{"params", func(n *yaml.Node) { p.params = d.namedScalars(n, "params", "{category_id: category_id}") }},
		field{"cascades", func(n *yaml.Node) {
			if n.Kind == yaml.MappingNode {
				p.ignored = d.namedScalars(n, "cascades", "{fk_product: ignore delete}")
			} else {
				p.cascades = d.scalarOf(n, "cascades")
			}
		}},
		d.text("on_error", &p.onError),
		field{"on", func(n *yaml.Node) { p.on = d.filledList(n, "on", "[insert, update, delete]") }},
	)
	return p
}

// filledList is like scalarsOf, and refuses an empty list.
func (d *decoder) filledList(n *yaml.Node, name, example string) []scalar {
	all := d.scalarsOf(n, name, example)
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		d.addFault(placeOf(n), "[]", name+" is empty", "write it like "+example+", or remove it")
	}
	return all
}

func (d *decoder) each(n *yaml.Node) []eachPart {
	var all []eachPart
	for _, e := range d.entries(n, "each", exampleEach) {
		p := eachPart{name: e.key}
		if e.value.Kind == yaml.SequenceNode {
			p.values = d.scalarsOf(e.value, e.key.text, "[new, price]")
			if len(e.value.Content) == 0 {
				d.addFault(placeOf(e.value), "[]", "the enumeration "+e.key.text+" has no values", "list its values, or remove it")
			}
		} else {
			p.span = d.scalarOf(e.value, e.key.text)
		}
		all = append(all, p)
	}
	return all
}

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
	only scalar // the reason of expires
	has  fieldSet
}

// A readDecoder decodes the section reads.
type readDecoder struct{ in *decoder }

func (r *readDecoder) reads(n *yaml.Node) []readPart {
	d := r.in
	var all []readPart
	for _, e := range d.entries(n, "reads", exampleReads) {
		p := readPart{name: e.key, comment: e.comment}
		p.has = d.fields(e.value, "the read "+e.key.text, exampleRead,
			d.text("key", &p.key), d.text("ttl", &p.ttl),
			d.text("stale", &p.stale), d.text("stale_on_error", &p.staleOnError), d.text("negative", &p.negative),
			d.text("sliding", &p.sliding), d.text("early_refresh", &p.earlyRefresh), d.text("memory", &p.memory),
			field{"tags", func(n *yaml.Node) { p.tags = d.filledList(n, "tags", `["category:{category_id}"]`) }},
			field{"sets", func(n *yaml.Node) { p.sets = d.filledList(n, "sets", `["shop:category:{category_id}:pages"]`) }},
			field{"from", func(n *yaml.Node) { p.from = d.filledList(n, "from", "[product, category]") }},
			field{"each", func(n *yaml.Node) { p.each = d.each(n) }},
			field{"of", func(n *yaml.Node) { p.of = d.namedScalars(n, "of", "{pid: product}") }},
			field{"expires", func(n *yaml.Node) { d.fields(n, "expires", exampleExpires, d.text("only", &p.only)) }},
		)
		all = append(all, p)
	}
	return all
}

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
	for _, e := range d.entries(n, "vars", exampleVars) {
		p := varPart{name: e.key} // one whose value cannot be read is known all the same
		switch p.list = e.value.Kind == yaml.SequenceNode; {
		case p.list:
			p.values = d.filledList(e.value, "the var "+e.key.text, "[en, de]")
		case e.value.Kind == yaml.MappingNode && unquoted(e.value) == "":
			p.fromEnv = v.fromEnv(e)
		default:
			p.values = []scalar{d.scalarOf(e.value, e.key.text)}
		}
		all = append(all, p)
	}
	return all
}

func (v *varDecoder) fromEnv(e entry) *fromEnvPart {
	d := v.in
	p := &fromEnvPart{}
	has := d.fields(e.value, "the var "+e.key.text, exampleFromEnv,
		d.text("from", &p.from),
		field{"one_of", func(n *yaml.Node) { p.oneOf = d.filledList(n, "one_of", "[dev, staging, prod]") }},
	)
	if has.lacks("from") {
		d.addFault(placeOf(e.value), e.key.text, "the var names no environment variable", "write it like "+exampleFromEnv)
	}
	return p
}
