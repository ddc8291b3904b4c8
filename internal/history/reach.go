package history

import (
	"slices"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// A reach finds out whether rows reach a key, without lookups.
type reach struct {
	m       *invalidation.Map // nil: unknown
	noMap   string            // then the reason
	key     string
	origins []invalidation.Origin
	all     bool // of origins
	member  bool // the key may be a member of an index set, or have a tag
}

// A Waiting row reaches the key or, if May is set, may reach it for that reason.
type Waiting struct {
	store.PendingRow
	May string
}

// searchedOrigins is how many origins of a key are distinguished; beyond, each row may reach it.
const searchedOrigins = 200

func newReach(m *invalidation.Map, noMap, key string) *reach {
	r := &reach{m: m, noMap: noMap, key: key, member: m == nil || mayBeMember(m, key)}
	if m != nil {
		r.origins, r.all = m.Origins(key, searchedOrigins)
	}
	return r
}

// mayBeMember reports whether an entry of the key may be in an index set, or have a tag. Only the
// section reads can exclude it.
func mayBeMember(m *invalidation.Map, key string) bool {
	if !slices.ContainsFunc(m.Names(), links) {
		return false
	}
	names, reads := m.Reads().Of(key), m.Reads().All()
	return len(names) == 0 || slices.ContainsFunc(names, func(n invalidation.ReadName) bool {
		return n.Unsure || slices.ContainsFunc(reads, func(r invalidation.Read) bool { return r.Name == n.Read && len(r.Tags)+len(r.Sets) > 0 })
	})
}

// links reports whether a name reaches entries that it does not name.
func links(n invalidation.MapName) bool {
	return n.Kind == invalidation.KindSet || n.Kind == invalidation.KindStamp
}

// linking reports whether rows of an entity reach entries that they do not name.
func (r *reach) linking(entity string) bool {
	d, _ := r.m.Describe(entity)
	return slices.ContainsFunc(d.Makes, links) || slices.ContainsFunc(d.As, func(a invalidation.AliasSource) bool { return r.linking(a.Entity) })
}

// query selects the rows that can reach the key.
func (r *reach) query() (q store.PendingQuery) {
	if r.m == nil || !r.all {
		return store.PendingQuery{All: true}
	}
	q.Objects = []store.Object{{Entity: invalidation.KeyEntity, ID: r.key}, {Entity: invalidation.PatternEntity}}
	for _, o := range r.origins {
		q.Objects = append(q.Objects, store.Object{Entity: o.Entity, ID: o.ID})
	}
	q.Not = []string{invalidation.KeyEntity, invalidation.PatternEntity}
	for _, entity := range r.m.Entities() {
		q.Not = append(q.Not, entity)
		if r.member && r.linking(entity) {
			q.Objects = append(q.Objects, store.Object{Entity: entity})
		}
	}
	return q
}

// of reports whether a row reaches the key, or may reach it, and then why that is not certain.
func (r *reach) of(p *store.PendingRow) (reaches bool, may string) {
	switch p.Entity {
	case invalidation.KeyEntity:
		return p.EntityID == r.key, ""
	case invalidation.PatternEntity:
		return matches(p.EntityID, r.key), ""
	}
	if r.m == nil {
		return true, r.noMap
	}
	if _, known := r.m.Describe(p.Entity); !known {
		return true, "the map has no such entity"
	}
	row, plan, err := invalidation.Row{Entity: p.Entity, ID: p.EntityID}, invalidation.Plan{}, error(nil)
	if p.Params != nil {
		row.Params, err = invalidation.ParseParams([]byte(*p.Params))
	}
	if err == nil {
		if plan, err = r.m.Expand(row, nil); err != nil {
			plan, _ = r.m.ExpandWithoutLookups(row) // err remains
		}
	}
	if slices.Contains(plan.Keys, r.key) || slices.ContainsFunc(plan.Patterns, func(pattern string) bool { return matches(pattern, r.key) }) {
		return true, ""
	}
	if r.member && r.linking(p.Entity) {
		return true, "it also invalidates an index set or a tag, and whether this key belongs to it is unknown"
	}
	if err == nil {
		return false, ""
	}
	// a missing or cut ID matches each
	whole := p.EntityID != "" && utf8.RuneCountInString(p.EntityID) <= 255
	return !r.all || slices.ContainsFunc(r.origins, func(o invalidation.Origin) bool {
		return o.Entity == p.Entity && (o.ID == "" || o.ID == p.EntityID || !whole)
	}), "which keys it has depends on lookups, or the map refuses it"
}

// matches reports whether a pattern matches a key.
func matches(pattern, key string) bool {
	glob, err := protocol.CompileGlob(pattern)
	return err == nil && glob.Match(key)
}
