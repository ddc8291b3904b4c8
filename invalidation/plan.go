package invalidation

import "time"

// A Plan is the set of names that one row invalidates. Do not modify it: it may share memory with
// the Map.
type Plan struct {
	// Keys are exact keys, including the keys of tag versions.
	Keys []string
	// Patterns are globs: only * and ? are special, a backslash takes the meaning from the
	// character after it.
	Patterns []string
	// Sets are index sets: keys of Redis sets whose members are cache keys.
	Sets []string
	// Repeat are the delays after which to apply the row again, in ascending order.
	Repeat []time.Duration
	// Hold is how long to refuse fills of the keys; zero means not at all.
	Hold time.Duration
	// Dropped is how many templates make nothing, since the row lacks an optional name that they
	// use. It counts those of each entity that the row expands as, once for each ID, including
	// those of as. [Map.FirstDropped] names one.
	Dropped int
}

// Len returns how many keys, patterns and sets the plan has together.
func (p *Plan) Len() int { return len(p.Keys) + len(p.Patterns) + len(p.Sets) }
