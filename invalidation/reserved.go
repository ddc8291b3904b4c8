package invalidation

import (
	"fmt"
	"strings"

	"github.com/unstale/unstale/protocol"
)

// Reserved entities are part of every map: their rows name what to unlink. A map cannot define
// them, because its names have no slash.
const (
	// KeyEntity has rows whose ID is an exact key.
	KeyEntity = "unstale/key"
	// PatternEntity has rows whose ID is a pattern.
	PatternEntity = "unstale/pattern"
	// EverythingParam is the parameter of a PatternEntity row. With the value true, the pattern may
	// match all keys of the map, and be shorter than limits.pattern_prefix.
	EverythingParam = "everything"
)

// IsReserved reports whether an entity is a reserved one.
func IsReserved(entity string) bool { return entity == KeyEntity || entity == PatternEntity }

var (
	keyEntity = &entity{
		name: KeyEntity, slots: []slot{{name: idName}},
		keys: []template{{source: "{id}", parts: []part{{slot: 0}}, choice: choice{slots: []int{idSlot}, axes: []int{idSlot}}}},
	}
	patternEntity = &entity{name: PatternEntity, slots: []slot{{name: idName}}, declared: []string{EverythingParam}}
)

// expandPattern expands a row of PatternEntity.
func expandPattern(m *Map, row Row) (Plan, error) {
	g, err := protocol.CompileGlob(row.ID)
	if err != nil {
		return Plan{}, badParam(idName, err)
	}
	if err := refusePrivate(g.Prefix()); err != nil {
		return Plan{}, err
	}
	plan := Plan{Patterns: []string{row.ID}}
	if p, _ := row.Params.Get(EverythingParam); len(p.Values) == 1 && p.Values[0] == "true" {
		return plan, nil
	}
	problem := "matches all keys of the map"
	if n := len(g.Prefix()); n < m.limits.PatternPrefix {
		problem = fmt.Sprintf("has %d bytes of literal text before its first wildcard, and limits.pattern_prefix is %d", n, m.limits.PatternPrefix)
	} else if !matchesAll(m, g) {
		return plan, nil
	}
	return Plan{}, &RowError{Reason: PatternTooWide, Err: fmt.Errorf("%q %s; write more literal text, or set the parameter %s to true", row.ID, problem, EverythingParam)}
}

// refusePrivate refuses a row of a reserved entity whose names begin like unstale's own.
func refusePrivate(start string) error {
	for _, p := range private {
		if strings.HasPrefix(start, p.prefix) {
			return badParam(idName, fmt.Errorf("names that begin with %s are unstale's own: %s; name keys of the application", p.prefix, p.what))
		}
	}
	return nil
}

// filled makes each star of a glob match at least one byte, as values do.
var filled = strings.NewReplacer(`\\`, `\\`, `\*`, `\*`, "*", "?*")

// matchesAll reports whether a pattern matches all keys of a map.
func matchesAll(m *Map, g protocol.Glob) bool {
	some := false
	for _, n := range m.Names() {
		if n.Kind == KindStamp {
			continue
		}
		some = true
		if name, err := protocol.CompileGlob(filled.Replace(n.Glob)); err != nil || !g.Includes(name) {
			return false
		}
	}
	return some
}
