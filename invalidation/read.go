package invalidation

import (
	"slices"
	"time"
)

// A Read is an entry of the section reads: a value that readers store, its lifetime, and what makes
// it stale.
type Read struct {
	Name string
	// Comment is the comment above the entry, without #.
	Comment string
	// Key, Tags and Sets are templates as written, with {name} for a hole or a var. Sets are the
	// index sets that contain the key.
	Key        string
	Tags, Sets []string
	// Holes are the names in the templates that the reader gives, in the order of first use.
	Holes []Hole
	// From are the entities that make the value stale, each of which covers it; none: any that
	// does.
	From []string
	// ExpiresOnly is the reason why no entity has to make the value stale, or empty.
	ExpiresOnly string
	Lifetime    Lifetime
	// Line and Column are the place in the map.
	Line, Column int
}

// A Hole is a name in the templates of a Read whose value the reader gives.
type Hole struct {
	Name string
	// Values are all values that it can have; nil: not known.
	Values []string
	// Entity is the entity whose IDs are its values, or empty.
	Entity string
	// Type is the type that generated code gives to its values.
	Type ValueType
}

// A Lifetime is for how long and how a value is kept. See the fields of the same names in
// cache.Options. Off stands for a field that the map turns off, and 0 for one that it leaves out.
type Lifetime struct {
	// Least and Most are the bounds of the TTL: readers choose one at random between them.
	Least, Most                   time.Duration
	Stale, StaleOnError, Negative time.Duration
	// SlidingMax is the longest life of a value that each read extends, or 0.
	SlidingMax   time.Duration
	EarlyRefresh float64
	SkipMemory   bool
}

// Off is the duration of a feature that a map turns off.
const Off time.Duration = -1

// Uncovered returns what the section reads leaves open, in file order: entries that no entity makes
// stale, templates of entities that reach no entry, and keys that mean two things. It is empty
// without the section. `unstale map check` fails if there is any; workers do not need the section,
// and ignore it.
func (m *Map) Uncovered() []Fault { return slices.Clone(m.uncovered) }

// texts returns the templates of the read.
func (r *Read) texts() []string { return slices.Concat([]string{r.Key}, r.Tags, r.Sets) }
