package keyspace

import (
	"slices"
	"strings"
)

// OwnPrefixes begin the names that only workers write: beacons, private names of index sets, and
// the state of workers.
var OwnPrefixes = []string{beaconPrefix, setPrefix, alivePrefix, string(WorkersPage), string(SourcesPage)}

// isState reports whether a name is of no data: a beacon, or what workers publish of their state.
func isState(name string) bool {
	return slices.ContainsFunc(OwnPrefixes, func(prefix string) bool { return prefix != setPrefix && strings.HasPrefix(name, prefix) })
}
