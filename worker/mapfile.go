package worker

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/unstale/unstale/invalidation"
)

// A mapFile holds the current map and replaces it when its file changes. A broken file leaves the
// old map in place. Safe for concurrent use.
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

	// the version of the last map that had an entity, of those before the current one; guarded by
	// mu
	earlier map[string]string
}

// openMapFile reads and compiles the map at path. env resolves ${...}, as os.LookupEnv does. The
// error of a broken map is invalidation.Faults.
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

// Map returns the current map.
func (f *mapFile) Map() *invalidation.Map { return f.current.Load() }

// Version returns the version of the current map.
func (f *mapFile) Version() string { return f.Map().Version() }

// Reload asks the worker to read the file now, as SIGHUP does, and to log what came of it in any
// case. It does not wait.
func (f *mapFile) Reload() { notify(f.reload) }

// read reads the file and reports whether it changed anything, a refusal that is over included.
// Errors are returned once for each content.
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
