package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// beacons compares the beacons in Redis with the positions of recent workers.
func beacons(ctx context.Context, e *Exam) ([]Finding, error) {
	positions, err := store.NewJournal(e.MySQL).RecentPositions(ctx, recently)
	if err != nil {
		return nil, err
	}
	if len(positions) == 0 {
		return []Finding{found(Unknown, "whether this Redis is the workers'", fmt.Sprintf("no batch was settled within %s", recently), "")}, nil
	}
	epochs := make([]string, len(positions))
	for i, p := range positions {
		epochs[i] = p.Epoch
	}
	has, err := e.Redis.Beacons.Survived(ctx, epochs)
	if err != nil {
		return nil, err
	}
	gone, short := 0, 0
	for _, p := range positions {
		switch n := has[p.Epoch]; {
		case n == 0, n == keyspace.Everything:
			gone++
		case n < p.N:
			short++
		}
	}
	var all []Finding
	if away := slices.Sorted(maps.Keys(e.away[aRedis])); len(away) > 0 {
		all = append(all, unseen("what masters that do not answer have of what workers were told", errors.New(strings.Join(away, ", ")), notReached))
	}
	evidence := fmt.Sprintf("of %s of the last %s it lacks %d and has %d in part", count(len(positions), "beacon"), recently, gone, short)
	switch {
	case gone == len(positions):
		return append(all, found(Critical, "this Redis has never heard of the workers: a wrong server or database, or it was emptied", evidence,
			"compare --redis-url and --redis-db-cache with those of the workers; if they are the same, workers heal it by themselves")), nil
	case gone+short > 0:
		return append(all, found(Warning, "Redis has lost what it acknowledged, or is about to be told more", evidence, "nothing: workers heal it within seconds; look again")), nil
	}
	return append(all, well("Redis has what workers were told in the last %s, by %s", recently, count(len(positions), "beacon"))), nil
}
