package keyspace

import "time"

// A TargetSet collects targets, each key once; the longest hold wins. The zero value is empty. Not
// safe for concurrent use.
type TargetSet struct {
	Targets []Target // in the order of their keys

	at map[string]int // where a key is in Targets
}

// NewTargetSet returns an empty set with room for n keys.
func NewTargetSet(n int) TargetSet {
	return TargetSet{make([]Target, 0, n), make(map[string]int, n)}
}

// Add adds a key, and returns where it is in Targets, and whether it was not there before.
func (s *TargetSet) Add(key string, hold time.Duration) (at int, added bool) {
	at, known := s.at[key]
	if !known {
		if s.at == nil {
			s.at = map[string]int{}
		}
		at = len(s.Targets)
		s.at[key] = at
		s.Targets = append(s.Targets, Target{Key: key})
	}
	s.Targets[at].Hold = max(s.Targets[at].Hold, hold)
	return at, !known
}

// Missing returns how many of the keys are not in the set.
func (s *TargetSet) Missing(keys []string) (n int) {
	for _, key := range keys {
		if _, known := s.at[key]; !known {
			n++
		}
	}
	return n
}

// Truncate drops all targets but the first n.
func (s *TargetSet) Truncate(n int) {
	for _, t := range s.Targets[n:] {
		delete(s.at, t.Key)
	}
	s.Targets = s.Targets[:n]
}
