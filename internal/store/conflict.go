package store

// A ConflictKind is a kind of conflict between the databases that workers serve with one Redis.
type ConflictKind string

// The kinds of conflicts.
const (
	ConflictRestored ConflictKind = "restored" // the database is older than Redis
	ConflictID       ConflictKind = "id"       // two databases have one ID
	ConflictNames    ConflictKind = "names"    // two databases have the same names
)

// ConflictKinds lists all kinds.
var ConflictKinds = []ConflictKind{ConflictRestored, ConflictID, ConflictNames}

// A Conflict is a problem with the data that Redis has about this outbox or another one. Workers
// detect it: see package status.
type Conflict struct {
	Kind ConflictKind
	Text string // one sentence, without final punctuation
	Cure string // what to do
}
