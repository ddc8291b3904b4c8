package doctor

import (
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

// workerRules returns the key patterns of a worker, and whether the map makes index sets.
func workerRules(m *invalidation.Map) (rules []string, sets bool) {
	var globs []string
	hold := false
	for _, name := range m.Names() {
		globs = append(globs, name.Glob)
		sets = sets || name.Kind == invalidation.KindSet
		hold = hold || name.Hold > 0 && name.Kind != invalidation.KindPattern
	}
	if sets { // their members
		globs = append(globs, m.Reads().Globs(invalidation.KindKey)...)
	}
	rules = patterns(globs)
	for _, rule := range strings.Fields(keyspace.StatusRules) {
		if strings.HasPrefix(rule, "~") {
			rules = append(rules, rule)
		}
	}
	rules = append(rules, "~"+protocol.BeaconPrefix+"*", "~"+protocol.LeasePrefix+"*")
	if hold {
		rules = append(rules, "~"+protocol.HoldPrefix+"*")
	}
	if sets {
		rules = append(rules, "~"+protocol.SetPrefix+"*")
	}
	return rules, sets
}

// readerRules returns the key patterns of a reader: of the reads, or without that section of all
// keys that the map makes.
func readerRules(m *invalidation.Map) []string {
	globs := append(m.Reads().Globs(invalidation.KindKey), m.Reads().Globs(invalidation.KindStamp)...)
	if len(globs) == 0 {
		for _, name := range m.Names() {
			if name.Kind != invalidation.KindSet {
				globs = append(globs, name.Glob)
			}
		}
	}
	return append(patterns(globs), "~"+protocol.LeasePrefix+"*", "~"+protocol.HoldPrefix+"*", "%R~"+protocol.AliveKey("")+"*")
}

// patterns returns rules for globs, sorted, without those that others include.
func patterns(globs []string) (rules []string) {
	var widest []string
	for _, g := range globs {
		if slices.ContainsFunc(widest, func(w string) bool { return includes(w, g) }) {
			continue
		}
		widest = append(slices.DeleteFunc(widest, func(w string) bool { return includes(g, w) }), g)
	}
	slices.Sort(widest)
	for _, g := range widest {
		rules = append(rules, "~"+safe(g))
	}
	return rules
}

// includes reports whether a glob matches every name that another one matches.
func includes(wider, glob string) bool {
	w, err := protocol.CompileGlob(wider)
	g, err2 := protocol.CompileGlob(glob)
	return err == nil && err2 == nil && w.Includes(g)
}

// safe returns a glob as a word that redis-cli, an ACL file and a shell in single quotes read
// unchanged: a ? takes the place of spaces, quotes and other bytes outside of printable ASCII.
func safe(glob string) string {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		c := glob[i]
		escaped := c == '\\' && i+1 < len(glob)
		if escaped {
			i++
			c = glob[i]
		}
		switch {
		case c <= ' ' || c > '~' || c == '\'' || c == '"':
			b.WriteByte('?')
		case escaped:
			b.WriteString(protocol.Escape(string(rune(c))))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
