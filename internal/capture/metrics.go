package capture

import (
	"fmt"
	"io"
	"time"
)

// WriteMetrics writes the result of a comparison of the triggers with the map, in the Prometheus
// text format.
func WriteMetrics(w io.Writer, differences int, at time.Time) error {
	_, err := fmt.Fprintf(w, `# HELP unstale_capture_differences Triggers that differ from the map or cannot be seen, and definers that lack a privilege.
# TYPE unstale_capture_differences gauge
unstale_capture_differences %d
# HELP unstale_capture_compared_at_seconds Unix time of the comparison.
# TYPE unstale_capture_compared_at_seconds gauge
unstale_capture_compared_at_seconds %d
`, differences, at.Unix())
	return err
}

// Differences returns how many triggers differ from the map or cannot be seen. An error of Examine
// counts as one more.
func Differences(changes []Change, err error) (n int) {
	for _, change := range changes {
		if change.State != InPlace {
			n++
		}
	}
	if err != nil {
		n++
	}
	return n
}
