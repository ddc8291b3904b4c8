package worker

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/invalidation"
)

// mapInterval is how often the map's file is read. Reading it, rather than watching its folder, sees every way in which
// a file is replaced: edited in place, renamed over, or a ConfigMap's symbolic link turned.
const mapInterval = 2 * time.Second

// A mapFile holds the current map and replaces it when its file changes. A broken file leaves the old map in place.
// Safe for concurrent use.
type mapFile struct {
	path    string
	env     func(string) (string, bool)
	current atomic.Pointer[invalidation.Map]
	lease   settleLease
	routes  routes
	reload  chan struct{}

	mu   sync.Mutex // guards src
	src  []byte     // as last read, good or bad
	fail error      // why it is bad, nil if it is good; guarded by mu

	earlier map[string]string // the version of the last map that had an entity, of those before the current one; guarded by mu
}

// openMapFile reads and compiles the map at path. env resolves ${...}, as os.LookupEnv does. The error of a broken map
// is invalidation.Faults.
func openMapFile(path string, env func(string) (string, bool)) (*mapFile, error) {
	f := &mapFile{path: path, env: env, reload: make(chan struct{}, 1), earlier: map[string]string{}}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// compiledMap holds a map that no file has.
func compiledMap(m *invalidation.Map) *mapFile {
	f := &mapFile{}
	f.current.Store(m)
	f.lease.set(m.Lease())
	f.routes.set(m)
	return f
}

// Map is the current map.
func (f *mapFile) Map() *invalidation.Map { return f.current.Load() }

// SettleLease is how long after its request a sweep settles: the longest lease that a reader may hold. A map with a
// shorter lease shortens it only when the leases of the map before have run out.
func (f *mapFile) SettleLease() time.Duration { return f.lease.longest() }

// Reload asks the worker to read the file now, as SIGHUP does, and to log what came of it in any case. It does not
// wait.
func (f *mapFile) Reload() { notify(f.reload) }

// read reads the file and reports whether it changed anything, a refusal that is over included. Errors are returned
// once for each content.
func (f *mapFile) read() (changed bool, err error) {
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
	f.lease.set(m.Lease())
	f.routes.set(m)
	old := f.current.Swap(m)
	if old != nil {
		for _, entity := range old.Entities() {
			f.earlier[entity] = old.Version()
		}
	}
	f.src, f.fail = src, nil
	return recovered || old == nil || old.Version() != m.Version(), nil
}

// had is the version of the last map before the current one that had an entity, "" if none had.
func (f *mapFile) had(entity string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.earlier[entity]
}

// gone lists the entities of a map that another one does not have.
func gone(old, now *invalidation.Map) (list []string) {
	has := map[string]bool{}
	for _, entity := range now.Entities() {
		has[entity] = true
	}
	for _, entity := range old.Entities() {
		if !has[entity] {
			list = append(list, entity)
		}
	}
	return list
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

// refusal is why the file as last read is not in use, nil if it is.
func (f *mapFile) refusal() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail
}

// watch keeps the map current until ctx ends. It logs what changes, and what somebody asked for. A map without a file
// stays.
func (f *mapFile) watch(ctx context.Context, log *slog.Logger, metrics *metrics) {
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
		changed, err := f.read()
		lost := gone(old, f.Map())
		metrics.maps.show(f.Map(), f.refusal() != nil)
		if changed && err == nil {
			f.warn(log)
		}
		switch {
		case err != nil:
			metrics.reloads.WithLabelValues("refused").Inc()
			log.Error("the new map is refused, the old one stays", "file", f.path, "map_version", f.Map().Version(), "error", err)
		case len(lost) > 0:
			metrics.reloads.WithLabelValues("loaded").Inc()
			log.Warn("map loaded, and entities are gone from it; their rows wait for about an hour and are then dead-lettered",
				"file", f.path, "map_version", f.Map().Version(), "old_version", old.Version(), "gone", len(lost), "entities", lost[:min(len(lost), 20)])
		case changed:
			metrics.reloads.WithLabelValues("loaded").Inc()
			log.Info("map loaded", "file", f.path, "map_version", f.Map().Version())
		case asked && f.refusal() != nil:
			log.Error("the map is still refused, the old one stays", "file", f.path, "map_version", f.Map().Version(), "error", f.refusal())
		case asked:
			log.Info("the map is unchanged", "file", f.path, "map_version", f.Map().Version())
		}
	}
}
