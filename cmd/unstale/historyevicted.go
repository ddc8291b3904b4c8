package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/history"
)

// evicted describes which processes evicted the keys of the row.
func evicted(s *history.Settlement) string {
	if len(s.EvictedBy) == 0 {
		return " (which of them evicted it is unknown: " + printable(s.EvictedUnknown) + ")"
	}
	var names []string
	for i, e := range s.EvictedBy {
		if i == shownNames {
			names = append(names, fmt.Sprintf("%d more; see --json", len(s.EvictedBy)-i))
			break
		}
		name := printable(e.Process)
		if e.Messages < s.Messages {
			name += fmt.Sprintf(", %d of %d messages", e.Messages, s.Messages)
		}
		names = append(names, name)
	}
	text := " (reported as evicted by "
	if s.Least {
		text += "at least "
	}
	return text + strings.Join(names, " and ") + "; whether others evicted it is unknown)"
}

// printUnreported prints the messages that processes have received and not reported.
func printUnreported(p process, unreported map[string]uint64) {
	for _, process := range slices.Sorted(maps.Keys(unreported)) {
		fmt.Fprintf(p.Out, "note: %s did not report %s that it received, possibly of these rows\n", printable(process), count(unreported[process], "message"))
	}
}
