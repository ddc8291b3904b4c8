package shadow

// A Result is the result of the check of a report.
type Result string

const (
	// Confirmed: the entry differs, and no row explains it.
	Confirmed Result = "confirmed"
	// Known: it is confirmed already, by another report.
	Known Result = "known"
	// Gone: the entry was invalidated, replaced or expired meanwhile.
	Gone Result = "gone"
	// Unknown: a row may explain the difference.
	Unknown Result = "unknown"
)

// Results are all results.
var Results = []Result{Confirmed, Known, Gone, Unknown}
