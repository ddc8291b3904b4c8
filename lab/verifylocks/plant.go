package verifylocks

// A Plant is a deliberate bug that shows whether the checker works. It sits in the sections of the
// holders: package lock has no code for it.
type Plant struct {
	Name, Breaks string
	phase        string // that reveals it
}

// The names of plants, which sections must know.
const (
	noGuard     = "no-guard"
	oldSnapshot = "old-snapshot"
	lateWrite   = "late-write"
)

// Plants are all of them.
var Plants = []Plant{
	{noGuard, "a section's transaction begins with Guard: it is an ordinary one", "redis empty"},
	{oldSnapshot, "a transaction begins after the acquisition: its snapshot is from before it", "calm"},
	{lateWrite, "what a section computes is written in its transaction: it is written when the lock is released", "calm"},
}

func plantNames() (names []string) {
	for _, p := range Plants {
		names = append(names, p.Name)
	}
	return names
}
