package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/store"
)

// lookups asks each lookup of the map for an id that nothing has, in the session in which a worker asks.
func lookups(ctx context.Context, e *Exam) (all []Finding, err error) {
	list := e.Map.Lookups()
	account, _, err := whoAndWhere(ctx, e.MySQL.DB())
	if err != nil {
		return nil, err
	}
	for _, l := range list {
		by := make([]string, len(l.By))
		for i := range by {
			by[i] = "unstale-doctor"
		}
		if _, err := e.MySQL.Lookup(ctx, l.SQL, [][]string{by}, l.Values()); ctx.Err() != nil {
			return all, fmt.Errorf("from that of %s on: %w", l.Param, err)
		} else if err != nil {
			all = append(all, lookupFinding(l.Param, err, account))
		}
	}
	if len(all) == 0 {
		all = append(all, well("%s run", count(len(list), "lookup")))
	}
	return all, nil
}

func lookupFinding(param string, err error, account string) Finding {
	cure := "correct the lookup of " + param + " in the map"
	var slow *store.SlowLookupError
	switch n := mysqlerr.Number(err); {
	case n == mysqlerr.NoRight, n == mysqlerr.NoColumnRight:
		cure = "GRANT SELECT ON the table that it names TO " + account + ";"
		if _, table, ok := strings.Cut(err.Error(), "for table "); ok {
			cure = "GRANT SELECT ON " + strings.ReplaceAll(strings.TrimSpace(table), "'", "`") + " TO " + account + ";"
		}
	case errors.As(err, &slow):
		cure = "index the columns that it looks up by, or raise --lookup-timeout"
	}
	return found(Critical, "the lookup of "+param+" fails, so its rows are delayed and then dead-lettered", err.Error(), cure)
}
