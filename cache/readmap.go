package cache

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/envtext"
	"github.com/unstale/unstale/protocol"
)

// A ReadMap is the part of a map that a generated package contains: see `unstale map generate`.
// Generated packages have one; applications use it only to set the variables. It is safe for
// concurrent use.
type ReadMap struct {
	hash string
	vars []ReadVar
	now  atomic.Pointer[readVars]

	mu      sync.Mutex
	entries []string // names, in the order of the map
}

// A ReadVar is an entry of vars whose value depends on the environment. Generated code fills it.
type ReadVar struct {
	Name string
	// Text is the value as written in the map, with ${NAME} and ${NAME:-default}.
	Text string
	// OneOf lists the allowed values. Nil allows any value.
	OneOf []string
}

// readVars are the values of the vars, or the reason why they are unknown.
type readVars struct {
	values  []string // as many as there are vars
	version string
	err     error
}

// NewReadMap is called by generated code.
func NewReadMap(hash string, vars ...ReadVar) *ReadMap { return &ReadMap{hash: hash, vars: vars} }

// Use sets the values of the map's variables from lookup, which works like os.LookupEnv. Without
// Use, they come from the environment of the process, at the first read. Call it before the first
// read if they come from elsewhere, for example in a test. The error names the variable; until Use
// succeeds, all reads of the package are loaded and not cached.
func (m *ReadMap) Use(lookup func(name string) (string, bool)) error {
	now := m.resolve(lookup)
	m.now.Store(now)
	return now.err
}

// Check returns an error if a variable of the map is missing or has a value that the map does not
// allow. Reads are then loaded and not cached. Call it at startup.
func (m *ReadMap) Check() error { return m.current().err }

// Version returns the fingerprint of the map's reads, with the values of the variables. `unstale
// map describe` prints the same one for the map of the workers. It is "" if Check fails.
func (m *ReadMap) Version() string { return m.current().version }

// Vars is called by generated code. It returns one value per variable, which is "" if Check fails.
func (m *ReadMap) Vars() []string { return m.current().values }

func (m *ReadMap) current() *readVars {
	if now := m.now.Load(); now != nil {
		return now
	}
	m.now.CompareAndSwap(nil, m.resolve(os.LookupEnv))
	return m.now.Load()
}

func (m *ReadMap) resolve(lookup func(string) (string, bool)) *readVars {
	now := &readVars{values: make([]string, len(m.vars))}
	var errs []error
	for i, v := range m.vars {
		value, err := v.resolve(lookup)
		now.values[i] = value
		errs = append(errs, err)
	}
	if now.err = errors.Join(errs...); now.err != nil {
		clear(now.values)
		return now
	}
	now.version = protocol.ReadsVersion(m.hash, now.values)
	return now
}

// resolve replaces environment variables as the map does.
func (v ReadVar) resolve(lookup func(string) (string, bool)) (string, error) {
	unset := ""
	value, _ := envtext.Replace(v.Text, func(r envtext.Reference) string {
		value, ok := r.Value(lookup)
		if unset == "" && (!ok || value == "" && v.OneOf != nil) {
			unset = r.Name
		}
		return value
	})
	switch {
	case unset != "":
		return "", fmt.Errorf("the environment variable %s is not set, and the var %s of the map needs it", unset, v.Name)
	case value == "":
		return "", fmt.Errorf("the var %s of the map is empty", v.Name)
	case v.OneOf != nil && !slices.Contains(v.OneOf, value):
		return "", fmt.Errorf("the var %s of the map is %q: must be one of %s", v.Name, value, strings.Join(v.OneOf, ", "))
	}
	return value, nil
}

// A ReadEntry is an entry of the map's section reads. Generated packages have one per entry.
type ReadEntry struct {
	m      *ReadMap
	name   string
	policy *Policy
}

// Entry is called by generated code. It panics if the options are invalid.
func (m *ReadMap) Entry(name string, o Options) *ReadEntry {
	e := &ReadEntry{m: m, name: name, policy: MustPolicy(o)}
	e.policy.read = e
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries = append(m.entries, name)
	return e
}

// Read is called by generated code, with the key and the tags of the value.
func (e *ReadEntry) Read(key string, tags ...string) Read {
	p := e.policy
	if len(tags) > 0 {
		p = p.Tagged(tags...)
	}
	return Read{key: key, policy: p, err: e.m.Check()}
}

// Refuse is called by generated code for a value that no row can have or that the map does not
// declare. The read is then loaded and not cached.
func (e *ReadEntry) Refuse(hole string, value any) Read {
	return Read{policy: e.policy, err: fmt.Errorf("the read %s: %s is %#v, and the map makes no such key stale", e.name, hole, value)}
}

// ReadText is called by generated code. It reports whether a row can have the text as a value: 1 to
// 255 characters of UTF-8.
func ReadText(text string) bool {
	return text != "" && utf8.ValidString(text) && utf8.RuneCountInString(text) <= protocol.MaxID
}

// A Read is one value that a map's section reads names: its key and its policy. Functions of
// generated packages return it. See FetchRead.
type Read struct {
	key    string
	policy *Policy
	err    error
}

// Key returns the whole key in Redis. It is "" if Err is not nil.
func (r Read) Key() string {
	if r.err != nil {
		return ""
	}
	return r.key
}

// Name returns the name of the entry of the section reads.
func (r Read) Name() string { return r.policy.read.name }

// Policy returns the policy of the value, with the tags of this key.
func (r Read) Policy() *Policy { return r.policy }

// Err returns the reason why the value is not cached: a variable of the map is not set, or the map
// does not declare a value of the key. It is nil for a value that is cached.
func (r Read) Err() error { return r.err }

// After returns a copy for a caller that must read its own writes: see Policy.After.
func (r Read) After(check Checker) Read {
	r.policy = r.policy.After(check)
	return r
}

// AppendUUID is called by generated code. It appends the text of a UUID to k, in lower case.
func AppendUUID(k []byte, id [16]byte) []byte {
	for i := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			k = append(k, '-')
		}
		k = hex.AppendEncode(k, id[i:i+1])
	}
	return k
}

// UUIDTexts is called by generated code. It returns the texts of UUIDs.
func UUIDTexts(ids [][16]byte) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = string(AppendUUID(nil, id))
	}
	return texts
}
