package invalidation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"sort"
)

// fingerprintLength is how many hex digits of the hash name a map.
const fingerprintLength = 12

// fingerprint hashes everything that determines how a row expands and is published. It leaves out
// names of vars with one value, formatting, comments and the order of entities. Texts are quoted,
// so no two different maps have the same input.
func (m *Map) fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "map 1 %q %q %d %d %d %d\n", m.channel, m.format, m.lease,
		m.limits.ParamsBytes, m.limits.KeysPerRow, m.limits.PatternPrefix)
	for _, name := range m.names {
		m.entities[name].write(h)
	}
	return hex.EncodeToString(h.Sum(nil))[:fingerprintLength]
}

func (e *entity) write(w io.Writer) {
	fmt.Fprintf(w, "entity %q %q %d %d\n", e.name, e.declared, e.repeat, e.hold)
	for n, s := range e.slots {
		fmt.Fprintf(w, "slot %q %q %t %d\n", s.name, s.each, s.optional, s.by.slots)
		if s.lookup != nil {
			fmt.Fprintf(w, "lookup %q\n", s.lookup.SQL)
		}
		// Fields of later versions are written only if they are used, so that old maps keep their
		// fingerprint.
		if s.lookup != nil && s.lookup.Always {
			fmt.Fprintln(w, "always")
		}
		if s.fallback != nil {
			fmt.Fprintf(w, "default %q\n", s.fallback)
		}
		if s.lead != n {
			fmt.Fprintf(w, "along with %d %d\n", s.lead, s.column)
		}
	}
	for _, list := range []struct {
		name      string
		templates []template
	}{{"keys", e.keys}, {"patterns", e.patterns}, {"sets", e.sets}} {
		for _, t := range list.templates {
			t.write(w, list.name)
		}
	}
	as := slices.Clone(e.as)
	sort.Slice(as, func(i, j int) bool { return as[i].target.name < as[j].target.name })
	for _, a := range as {
		a.id.write(w, fmt.Sprintf("as %q", a.target.name))
	}
}

func (t *template) write(w io.Writer, what string) {
	fmt.Fprintf(w, "%s %d", what, t.slots)
	for _, p := range t.parts {
		fmt.Fprintf(w, " %q %d", p.text, p.slot)
	}
	fmt.Fprintln(w)
}
