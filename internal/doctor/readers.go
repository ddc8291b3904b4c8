package doctor

import "context"

// readers reports that readers are unknown: they are other processes, in other languages.
func readers(context.Context, *Exam) ([]Finding, error) {
	return []Finding{found(Unknown, "settings of those who fill and read the cache: leases, times to live, channels",
		"they are set in each application, and no server tells", "compare them with docs/cache.md and docs/protocol.md")}, nil
}
