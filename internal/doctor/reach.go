package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/invalidation"
)

// reach says what of the given does not answer.
func reach(_ context.Context, e *Exam) (all []Finding, _ error) {
	answered := []string{}
	for _, n := range []need{aMySQL, aRedis, aMap, auditMySQL, auditRedis, aState} {
		for _, addr := range slices.Sorted(maps.Keys(e.away[n])) {
			after := ", and rows with keys there wait"
			if n == aState {
				after = ""
			}
			all = append(all, found(n.severity(), string(n)+": a master of the Cluster does not answer"+after, addr+": "+e.away[n][addr].Error(),
				"bring it back, or have a replica take over"))
		}
		switch err := e.reached[n]; {
		case errors.Is(err, errNotGiven):
		case err == nil:
			answered = append(answered, string(n))
		case n == aMap:
			all = append(all, mapFinding(err))
		default:
			all = append(all, found(n.severity(), string(n)+" does not answer", err.Error(), reachCure(err)))
		}
	}
	all = append(all, e.placed()...)
	if len(all) == 0 && len(answered) > 0 {
		all = append(all, well("given and well: %s", strings.Join(answered, ", ")))
	}
	if len(all) == 0 {
		all = append(all, unseen("nothing to look at", errNotGiven, "give --mysql-dsn, --redis-url and --map"))
	}
	return all, nil
}

// severity is how much it matters that it does not answer: workers can do without some.
func (n need) severity() Severity {
	switch n {
	case auditMySQL, auditRedis, aState:
		return Warning
	}
	return Critical
}

func mapFinding(err error) Finding {
	cure := "fix it; 'unstale map check' says more"
	var faults invalidation.Faults
	if !errors.As(err, &faults) {
		cure = "name the file with --map"
	}
	return found(Critical, "the map is refused: no worker starts with it, and one that runs keeps the old one", err.Error(), cure)
}

// reachCure says what to do about a server that refuses us; an outage says so itself.
func reachCure(err error) string {
	switch n := mysqlerr.Number(err); n {
	case mysqlerr.AccessDenied:
		return "check user and password of the DSN"
	case mysqlerr.DatabaseDenied, mysqlerr.NoDatabase:
		return fmt.Sprintf("check the database that the DSN names, after the last slash (error %d)", n)
	}
	return "check its address, and that it runs"
}
