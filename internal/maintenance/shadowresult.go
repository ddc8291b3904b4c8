package maintenance

// A Result is the result of the check of a report.
type ShadowResult string

const (
	// Confirmed: the entry differs, and no row explains it.
	Confirmed ShadowResult = "confirmed"
	// Known: it is confirmed already, by another report.
	Known ShadowResult = "known"
	// Gone: the entry was invalidated, replaced or expired meanwhile.
	Gone ShadowResult = "gone"
	// Unknown: a row may explain the difference.
	ShadowUnknown ShadowResult = "unknown"
)

// ShadowResults are all results.
var ShadowResults = []ShadowResult{Confirmed, Known, Gone, ShadowUnknown}
