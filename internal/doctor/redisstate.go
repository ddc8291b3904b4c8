package doctor

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// redisState finds other data in the cache's Redis: they share its memory, its evictions and its
// losses.
func redisState(ctx context.Context, e *Exam) ([]Finding, error) {
	cache := e.AuditRedis.DB()
	if e.Redis != nil {
		cache = e.Redis.Nodes.DB()
	}
	return eachMaster(ctx, e, func(i *info) []Finding {
		var others []string
		for name, value := range i.values {
			db, err := strconv.Atoi(strings.TrimPrefix(name, "db"))
			if err != nil || !strings.HasPrefix(name, "db") || db == cache {
				continue
			}
			text := name + " (" + strings.Split(value, ",")[0] + ")"
			if db == e.StateDB {
				text += ", which --redis-db-state names"
			}
			others = append(others, text)
		}
		slices.Sort(others)
		if len(others) > 0 {
			return []Finding{found(Warning, "the cache's Redis has other data as well, which are evicted and forgotten with it", i.addr+": "+strings.Join(others, "; "),
				"give sessions, limits and locks a Redis of their own, with an append-only file")}
		}
		if e.StateDB >= 0 {
			return []Finding{found(Unknown, "whether sessions, limits and locks share the cache's Redis", i.addr+": database "+strconv.Itoa(e.StateDB)+" is empty here", "")}
		}
		return []Finding{well("%s: no other database has keys; unstale doctor --keys looks at the names in this one", i.addr)}
	}, "keyspace")
}
