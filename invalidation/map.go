package invalidation

import (
	"slices"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A Map is a compiled mapping.yaml. It is immutable and safe for concurrent use.
type Map struct {
	version  string
	channel  string
	format   protocol.Format
	lease    time.Duration
	limits   Limits
	entities map[string]*entity // with the reserved ones, which names lacks
	names    []string
	captures []Capture
	reads    ReadSection
	ranks    int
	warnings []Fault

	deprecations []Fault
	uncovered    []Fault
}

// Limits bound what one row can cost.
type Limits struct {
	// ParamsBytes is how long the params of a row may be.
	ParamsBytes int
	// KeysPerRow is to how many keys, patterns and sets together a row may expand.
	KeysPerRow int
	// PatternPrefix is how many bytes of literal text a pattern must have before its first * or ?.
	PatternPrefix int
}

// Version returns the first 12 hex digits of the SHA-256 of the effective map: variables are
// resolved, formatting and comments do not count.
func (m *Map) Version() string { return m.version }

// Channel returns the Redis channel of the published invalidations.
func (m *Map) Channel() string { return m.channel }

// Format returns the format of the messages.
func (m *Map) Format() protocol.Format { return m.format }

// Lease returns the longest lease that a reader may hold on a key that it fills.
func (m *Map) Lease() time.Duration { return m.lease }

// Limits returns the limits of the map.
func (m *Map) Limits() Limits { return m.limits }

// Entities returns the names of the entities, sorted, without reserved ones.
func (m *Map) Entities() []string { return slices.Clone(m.names) }

// Warnings returns advice about the map, in file order. A map with warnings is valid.
func (m *Map) Warnings() []Fault { return slices.Clone(m.warnings) }

// Deprecations returns the faults that this release accepts, because an upgrade must not stop a
// worker, and the next release refuses. They are in file order. `unstale map check` fails if there
// are any.
func (m *Map) Deprecations() []Fault { return slices.Clone(m.deprecations) }
