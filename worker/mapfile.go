package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/unstale/unstale/internal/maintenance"
	"github.com/unstale/unstale/invalidation"
)

// A mapFile holds the current map and replaces it when its file changes. A broken file leaves the
// old map in place. Safe for concurrent use.
type mapFile struct {
	path    string
	env     func(string) (string, bool)
	current atomic.Pointer[invalidation.Map]
	lease   maintenance.SettleLease
	routes  routes
	reload  chan struct{}

	mu   sync.Mutex // guards src
	src  []byte     // as last read, good or bad
	fail error      // why it is bad, nil if it is good; guarded by mu

	// the version of the last map that had an entity, of those before the current one; guarded by
	// mu
	earlier map[string]string
}

// openMapFile reads and compiles the map at path. env resolves ${...}, as os.LookupEnv does. The
// error of a broken map is invalidation.Faults.
func openMapFile(path string, env func(string) (string, bool)) (*mapFile, error) {
	f := &mapFile{path: path, env: env, reload: make(chan struct{}, 1), earlier: map[string]string{}}
	if _, err := f.readChanges(); err != nil {
		return nil, err
	}
	return f, nil
}

// compiledMap holds a map that no file has.
func compiledMap(m *invalidation.Map) *mapFile {
	f := &mapFile{}
	f.current.Store(m)
	f.lease.Set(m.Lease())
	f.routes.setMap(m)
	return f
}

// Map returns the current map.
func (f *mapFile) Map() *invalidation.Map { return f.current.Load() }

// Version returns the version of the current map.
func (f *mapFile) Version() string { return f.Map().Version() }

// Reload asks the worker to read the file now, as SIGHUP does, and to log what came of it in any
// case. It does not wait.
func (f *mapFile) Reload() { maintenance.Nudge(f.reload) }

// readChanges reads the file and reports whether it changed anything, a refusal that is over
// included. Errors are returned once for each content.
func (f *mapFile) readChanges() (changed bool, err error) {
	src, err := invalidation.ReadFile(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		return false, f.once(nil, err)
	}
	if f.current.Load() != nil && f.src != nil && bytes.Equal(src, f.src) {
		return false, nil
	}
	m, err := invalidation.Parse(f.path, src, f.env)
	if err != nil {
		return false, f.once(src, err)
	}
	recovered := f.fail != nil
	f.lease.Set(m.Lease())
	f.routes.setMap(m)
	old := f.current.Swap(m)
	if old != nil {
		for _, entity := range old.Entities() {
			f.earlier[entity] = old.Version()
		}
	}
	f.src, f.fail = src, nil
	return recovered || old == nil || old.Version() != m.Version(), nil
}

// had returns the version of the last map before the current one that had an entity, "" if none
// had.
func (f *mapFile) had(entity string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.earlier[entity]
}

// once remembers a bad content and returns err only if it is news.
func (f *mapFile) once(src []byte, err error) error {
	f.src = src
	if f.fail != nil && f.fail.Error() == err.Error() {
		return nil
	}
	f.fail = err
	return err
}

// refusal returns why the latest content of the file is not in use, or nil if it is.
func (f *mapFile) refusal() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail
}

// mapInterval is how often the file of the map is read. Reading it, instead of watching its
// directory, detects every way to replace a file: edited in place, renamed over, or a ConfigMap's
// symbolic link that changes.
const mapInterval = 2 * time.Second

// watchFile keeps the map current until ctx ends. It logs changes and requested reloads. A map
// without a file stays.
func (b *base) watchFile(ctx context.Context) {
	f, log := b.maps, b.Log
	if f.path == "" {
		return
	}
	ticker := time.NewTicker(mapInterval)
	defer ticker.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-f.reload:
			asked = true
		}
		old := f.Map()
		changed, err := f.readChanges()
		lost := gone(old, f.Map())
		b.metrics.maps.show(f.Map(), f.refusal() != nil)
		if changed && err == nil {
			warnDeprecated(log, f.Map())
		}
		switch {
		case err != nil:
			b.metrics.reloads.WithLabelValues("refused").Inc()
			log.Error("the new map is refused, the old one stays", "file", f.path, "map_version", f.Map().Version(), "error", err)
		case len(lost) > 0:
			b.metrics.reloads.WithLabelValues("loaded").Inc()
			log.Warn("map loaded, and entities are gone from it; their rows wait for about an hour and are then dead-lettered",
				"file", f.path, "map_version", f.Map().Version(), "old_version", old.Version(), "gone", len(lost), "entities", lost[:min(len(lost), 20)])
		case changed:
			b.metrics.reloads.WithLabelValues("loaded").Inc()
			log.Info("map loaded", "file", f.path, "map_version", f.Map().Version())
		case asked && f.refusal() != nil:
			log.Error("the map is still refused, the old one stays", "file", f.path, "map_version", f.Map().Version(), "error", f.refusal())
		case asked:
			log.Info("the map is unchanged", "file", f.path, "map_version", f.Map().Version())
		}
	}
}

// gone lists the entities of a map that another one does not have.
func gone(old, now *invalidation.Map) []string {
	left := now.Entities() // sorted
	return slices.DeleteFunc(old.Entities(), func(entity string) bool {
		_, stays := slices.BinarySearch(left, entity)
		return stays
	})
}

// mapGauges are the metrics of the current map. One goroutine at a time changes them.
type mapGauges struct {
	info     *prometheus.GaugeVec // by version
	reads    *prometheus.GaugeVec // by fingerprint; empty for a map without reads
	differs  prometheus.Gauge
	entities *entityCounts
	// rows and values without an effect, which show nowhere else
	dropped    *entityCounts
	undeclared *entityCounts
	shown      *invalidation.Map
}

// show shows the map in use, and whether its file says something else, which the worker has refused
// or cannot read.
func (g *mapGauges) show(now *invalidation.Map, differs bool) {
	g.differs.Set(maintenance.OneIf(differs))
	if now == g.shown {
		return
	}
	for _, counts := range []*entityCounts{g.entities, g.dropped, g.undeclared} {
		counts.setEntities(now)
	}
	before := [2]string{}
	if g.shown != nil {
		before = [2]string{g.shown.Version(), g.shown.Reads().Version()}
	}
	setOnly(g.info, before[0], now.Version())
	setOnly(g.reads, before[1], now.Reads().Version())
	g.shown = now
}

// setOnly replaces the series of one value by that of another. An empty value has none.
func setOnly(vec *prometheus.GaugeVec, before, now string) {
	if now != "" {
		vec.WithLabelValues(now).Set(1)
	}
	if before != now {
		vec.DeleteLabelValues(before)
	}
}

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

// rememberRefusal records that MySQL refused a lookup, unless err is nil, and logs it once if the
// map does not tell.
func (d *deprecated) rememberRefusal(query string, err error) {
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
