package keyspace

// What tests outside of the package need to see.
var (
	StateOf     = stateOf
	PrivateName = privateName
	Slot        = slot
)
