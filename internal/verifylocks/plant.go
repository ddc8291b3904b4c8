package verifylocks

// A Plant is a bug that is put in on purpose, to see that the meter notices. It sits in the holders' sections: package lock
// has no line for it.
type Plant struct {
	Name, Breaks string
	phase        string // in which it shows
}

// The names of plants, which sections must know.
const (
	noGuard        = "no-guard"
	oldSnapshot    = "old-snapshot"
	earlySavepoint = "early-savepoint"
)

// Plants are all of them.
var Plants = []Plant{
	{noGuard, "a section's transaction begins with Guard: it is an ordinary one", "redis empty"},
	{oldSnapshot, "a transaction begins after the acquisition: its snapshot is from before it", "calm"},
	{earlySavepoint, "the token's row stays locked until COMMIT: a savepoint from before Guard is rolled back to", "redis empty"},
}

func plantNames() (names []string) {
	for _, p := range Plants {
		names = append(names, p.Name)
	}
	return names
}
