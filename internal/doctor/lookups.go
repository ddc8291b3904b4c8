package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
)

// lookupsRun checks each lookup of the map, in a session with the settings of a worker.
func lookupsRun(ctx context.Context, e *Exam) (all []Finding, err error) {
	list := e.Map.Lookups()
	account, _, err := whoAndWhere(ctx, e.MySQL.DB())
	if err != nil {
		return nil, err
	}
	for _, fault := range e.Map.Deprecations() {
		all = append(all, found(Warning, "the next release refuses the map: "+fault.Problem, fault.String(), fault.Cure))
	}
	var unproven []error
	for _, l := range list {
		switch proof, err := CheckLookup(ctx, e.MySQL, l); {
		case ctx.Err() != nil:
			return all, fmt.Errorf("from that of %s on: %w", l.Param, errors.Join(err, ctx.Err()))
		case err != nil:
			all = append(all, lookupFinding(l.Param, err, account))
		case proof.Differs != "":
			all = append(all, found(Critical, "the lookup of "+l.Param+" is right for one ID and wrong for several, so keys stay stale", proof.Differs, CureDiffers))
		case proof.Unproven != "" && !l.Single:
			unproven = append(unproven, fmt.Errorf("%s: %v", l.Param, proof))
		}
	}
	if len(all) == 0 {
		all = append(all, well("%s run", count(len(list), "lookup")))
	}
	if len(unproven) > 0 {
		all = append(all, unseen("whether lookups find the same for several IDs together as one by one", errors.Join(unproven...), "run this check again when the tables have rows"))
	}
	return all, nil
}

func lookupFinding(param string, err error, account string) Finding {
	cure := LookupCure(err)
	switch n := mysqlerr.Number(err); {
	case session.IsGrouping(err):
		return found(Warning, "the next release refuses the lookup of "+param, err.Error(), cure)
	case n == mysqlerr.NoRight, n == mysqlerr.NoColumnRight:
		cure = "GRANT SELECT ON the table that it names TO " + account + ";"
		if _, table, ok := strings.Cut(err.Error(), "for table "); ok {
			cure = "GRANT SELECT ON " + strings.ReplaceAll(strings.TrimSpace(table), "'", "`") + " TO " + account + ";"
		}
	}
	return found(Critical, "the lookup of "+param+" fails, so its rows are delayed and then dead-lettered", err.Error(), cure)
}
