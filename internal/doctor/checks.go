package doctor

import (
	"context"
	"errors"
	"slices"
	"time"
)

// A Check looks for one kind of fault.
type Check struct {
	Name  string
	About string // what it examines, in a few words
	needs []need
	run   func(context.Context, *Inputs) ([]Finding, error)
}

// checkLimit bounds one check.
const checkLimit = 10 * time.Second

// Checks are all checks, in the order of their execution.
var Checks = []Check{
	{"reach", "whether the servers answer and the map can be read", nil, reach},
	{"schema", "whether the outbox's tables fit this binary", []need{aMySQL}, schemaFits},
	{"mysql-rights", "what the worker's MySQL account may do, by doing it to no row, and what it need not", []need{aMySQL}, mysqlRights},
	{"ids", "how many IDs the tables of the outbox have left", []need{aMySQL}, ids},
	{"float-ids", "whether a driver wrote IDs as floats", []need{aMySQL, aMap}, floatIDs},
	{"mysql-settings", "settings of the MySQL server", []need{aMySQL}, mysqlSettings},
	{"mysql-connections", "connections against the server's cap", []need{aMySQL}, mysqlConnections},
	{"redis-rights", "what the worker's Redis account may do, by doing it to made-up names, and what it need not", []need{aRedis}, redisRights},
	{"redis-publishers", "which users of Redis may publish to readers", []need{aRedis, auditRedis, aMap}, redisPublishers},
	{"lookups", "whether the map's lookups run, and find the same for several IDs together as one by one", []need{aMySQL, aMap}, lookupsRun},
	{"capture", "whether the triggers are those of the map", []need{aMap}, captures},
	{"queue", "whether rows, sweeps and dead letters wait", []need{aMySQL}, queue},
	{"running-map", "whether workers use this map", []need{aMySQL, aMap}, runningMap},
	{"beacon", "whether this Redis has what workers were told by theirs", []need{aMySQL, aRedis}, beacons},
	{"databases", "whether another database on this Redis has the ID of this one, and whether this one was restored", []need{aMySQL, aRedis}, databases},
	{"clocks", "this host's clock against the servers'", nil, clocks},

	{"mysql-inserts", "which accounts may choose the ID of a row", []need{auditMySQL}, inserts},
	{"purge", "deleted rows that MySQL has not purged", []need{auditMySQL}, purge},
	{"transactions", "transactions that hold rows of the outbox, and whose they are", []need{auditMySQL}, transactions},
	{"mysql-replication", "how far the audited MySQL is behind its source", nil, mysqlReplication},
	{"redis-memory", "memory, eviction and fragmentation of Redis", []need{auditRedis}, redisMemory},
	{"redis-persistence", "whether the cache's Redis writes to its disk", []need{auditRedis}, redisPersistence},
	{"redis-slowlog", "what was slow in Redis lately", []need{auditRedis}, redisSlowLog},
	{"redis-replication", "how far replicas of Redis are behind", []need{auditRedis}, redisReplication},
	{"redis-state", "whether durable data share the cache's Redis", []need{auditRedis}, redisState},
	{"state", "whether the Redis of sessions, limits and locks keeps them", []need{aState}, stateKept},
}

// Examine runs the checks with the given names, or all, one by one, and returns their findings, at
// least one each. When ctx ends, the remaining checks are unknown.
func Examine(ctx context.Context, e *Inputs, names ...string) []Finding {
	e.reach(ctx)
	e.compare(ctx)
	var all []Finding
	for _, c := range Checks {
		if len(names) > 0 && !slices.Contains(names, c.Name) {
			continue
		}
		all = append(all, c.make(ctx, e)...)
	}
	return all
}

func (c *Check) make(ctx context.Context, e *Inputs) (all []Finding) {
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	cure, err := e.lacks(c.needs)
	if err == nil {
		if all, err = c.run(limited, e); err != nil && limited.Err() != nil {
			err = errors.Join(errors.New("it was not over within "+checkLimit.String()), err)
		}
	}
	if err != nil {
		all = append(all, unknown(c.About, err, cure))
	}
	for i := range all {
		all[i].Check = c.Name
	}
	return all
}
