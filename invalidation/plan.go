package invalidation

import "time"

// A Plan is what one row invalidates. It is not to be modified: it may share memory with the Map.
type Plan struct {
	// Keys are exact keys, stamp keys included.
	Keys []string
	// Patterns are globs: only * and ? are special, a backslash takes the meaning from the character after it.
	Patterns []string
	// Sets are index sets: keys of Redis sets whose members are cache keys.
	Sets []string
	// Repeat says after which delays the row is to be applied again, in ascending order.
	Repeat []time.Duration
	// Hold says for how long fills of the keys are to be refused; zero means not at all.
	Hold time.Duration
	// Dropped is how many templates make nothing, since the row does not give an optional name that they use: of each entity as
	// which it expands once for each id, and those of as among them. [Map.FirstDropped] names one.
	Dropped int
}

// Len returns how many keys, patterns and sets the plan has together.
func (p *Plan) Len() int { return len(p.Keys) + len(p.Patterns) + len(p.Sets) }
