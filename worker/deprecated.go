package worker

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/unstale/unstale/invalidation"
)

// cureDeprecated is the fix for a map that the next release refuses.
const cureDeprecated = "fix the map: unstale map check"

// warnDeprecated logs each fault of a map that the next release refuses.
func warnDeprecated(log *slog.Logger, m *invalidation.Map) {
	for _, fault := range m.Deprecations() {
		log.Warn("map has a fault that the next release refuses", "map_version", m.Version(), "fault", fault.String(), "cure", cureDeprecated)
	}
}

// A deprecated lists the lookups of a map that MySQL does not run with ONLY_FULL_GROUP_BY, which
// the next release refuses. Safe for concurrent use.
type deprecated struct {
	log  *slog.Logger
	maps *mapFile

	mu      sync.Mutex
	lookups map[string]error // by statement
}

// note records that MySQL refused a lookup, unless err is nil, and logs it once if the map does not
// tell.
func (d *deprecated) note(query string, err error) {
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lookups[query] != nil {
		return
	}
	if d.lookups == nil {
		d.lookups = map[string]error{}
	}
	d.lookups[query] = err
	if slices.ContainsFunc(d.maps.Map().Lookups(), func(l *invalidation.Lookup) bool { return l.SQL == query && l.Single }) {
		return
	}
	d.log.Warn("map has a lookup that the next release refuses", "sql", query, "error", err, "cure", cureDeprecated+" --mysql-dsn")
}

// warning returns why the next release refuses the current map, or "".
func (d *deprecated) warning() string {
	all := d.of(d.maps.Map())
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return fmt.Sprintf("%s (and %d more)", all[0], len(all)-1)
}

// of lists what the next release refuses of a map, as far as this worker knows.
func (d *deprecated) of(m *invalidation.Map) (all []string) {
	for _, fault := range m.Deprecations() {
		all = append(all, fault.String())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.lookups) == 0 {
		return all
	}
	for _, l := range m.Lookups() {
		if err := d.lookups[l.SQL]; err != nil && !l.Single {
			all = append(all, "the lookup of "+l.Param+": "+err.Error())
		}
	}
	return all
}
