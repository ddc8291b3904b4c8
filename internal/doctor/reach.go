package doctor

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/invalidation"
)

// reach reports which given servers do not answer.
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
			title, cure := refusal(err)
			all = append(all, found(n.severity(), string(n)+title, err.Error(), cure))
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

// severity returns the severity of a server that does not answer: workers can run without some.
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

// refusal describes a server that answers and refuses, or one that does not answer, and the fix. An
// outage of Redis has its own fix for most refusals.
func refusal(err error) (title, cure string) {
	var redis *keyspace.Outage
	var setting session.SettingError
	switch {
	case errors.As(err, &redis) && redis.State == keyspace.StateAuth:
		return " refuses the account", "check user and password of the URL; ACL GETUSER shows whether the user is on and has that password"
	case errors.As(err, &redis) && redis.State != keyspace.StateNetwork && redis.State != keyspace.StateTimeout:
		return " answers with a refusal", "what the error names; docs/operations.md#outages"
	case errors.As(err, &setting):
		_, cure, _ := strings.Cut(setting.Error(), "; ")
		return " does not fit: no worker starts with it", cure
	case mysqlerr.Number(err) != 0:
		return " refuses the account or the session", cmp.Or(session.Fix(err), "what the error names")
	}
	return " does not answer", "check its address, and that it runs"
}
