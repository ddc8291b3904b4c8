package maintenance

import (
	"slices"

	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// Grant is the fix for an account that may not store findings.
const Grant = "GRANT SELECT, INSERT, DELETE ON cache_outbox_shadow to the worker's account; docs/accounts.md lists the grants"

// mostOrigins bounds the search for entities that reach a name.
const mostOrigins = 100

// names returns the key, and the keys of the versions of its tags.
func (f *ShadowFinding) names() []string {
	names := []string{f.Key}
	for _, tag := range f.Tags {
		names = append(names, protocol.StampKey(tag))
	}
	return names
}

// Fix returns what an operator can do.
func (f *ShadowFinding) Fix() string {
	switch {
	case f.Outcome == Survived:
		return "look for a reader that stores values without a lease, or with a lease longer than the map's"
	case len(f.Entities) == 0:
		return "add the key to an entity of the map: no row reaches it"
	}
	return "find a write of these entities, committed before loaded_at, that inserts no row: unstale map who KEY"
}

// entities returns the entities whose rows reach any of names, and whether these are all.
func entities(m *invalidation.Map, names []string) (found []string, complete bool) {
	complete = true
	for _, name := range names {
		origins, all := m.Origins(name, mostOrigins)
		complete = complete && all
		for _, o := range origins {
			found = append(found, o.Entity)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), complete
}

// reaches reports whether a pattern matches any of names. A pattern that cannot be read might.
func reaches(pattern string, names []string) bool {
	glob, err := protocol.CompileGlob(pattern)
	return err != nil || slices.ContainsFunc(names, glob.Match)
}

// holds reports whether a row that reaches any of names has a hold that is longer than the lease.
func holds(m *invalidation.Map, names []string) bool {
	return slices.ContainsFunc(m.Names(), func(n invalidation.MapName) bool {
		return n.Hold > m.Lease() && reaches(n.Glob, names)
	})
}
