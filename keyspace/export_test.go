package keyspace

// What tests outside of the package need to see.
var (
	StateOf     = stateOf
	PrivateName = privateName
	Slot        = slot
)

// JudgeBeacon is what Survived makes of the texts of a beacon's two keys.
func JudgeBeacon(a, b string) uint64 { return survived(parseValue(a), parseValue(b)) }
