package keyspace

// What tests outside of the package need to see.
var (
	StateOf     = stateOf
	PrivateName = privateName
	Slot        = slot
)

// JudgeBeacon is what Survived makes of the texts of a beacon's two keys.
func JudgeBeacon(a, b string) uint64 { return survived(parseValue(a), parseValue(b)) }

// NewMatcher is what a pass asks of each name: the index of the first of
// patterns that it matches, or -1.
func NewMatcher(patterns []string) func(name string) int {
	results := make([]PatternResult, len(patterns))
	for i, p := range patterns {
		results[i].Pattern = p
	}
	return compile(results).match
}
