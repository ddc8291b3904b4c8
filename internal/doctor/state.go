package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/redisclient"
)

// stateKept checks the Redis of sessions, limits and locks as packages lock and limit do, and
// whether it is a server of the cache.
func stateKept(ctx context.Context, e *Exam) ([]Finding, error) {
	caches, cachesUntold := e.cacheServers(ctx)
	var channels []string
	if e.Wake != "" {
		channels = append(channels, e.Wake)
	}
	return onMasters(ctx, e, aState, func(c *redis.Client, addr string) (all []Finding, _ error) {
		faults := redisclient.StateFaults(ctx, c, channels...)
		if !slices.ContainsFunc(faults, func(f *redisclient.StateFault) bool { return f.IsCache() || f.Err != nil }) {
			server, err := serverOf(ctx, c)
			switch err = errors.Join(cachesUntold, err); {
			case err != nil:
				all = append(all, unseen("whether "+addr+" is the cache's too", err, notGivenRed))
			case slices.Contains(caches, server):
				faults = append(faults, redisclient.CacheFault(addr, "run_id "+server+" is that of a server of the cache"))
			}
		}
		for _, f := range faults {
			if f.Err != nil {
				all = append(all, unseen("whether "+addr+" keeps sessions, limits and locks", f.Err, f.Cure))
				continue
			}
			all = append(all, found(Warning, "the Redis of sessions, limits and locks "+f.Says, addr+": "+f.Seen, f.Cure))
		}
		if len(all) == 0 {
			all = append(all, well("%s keeps an append-only file, evicts nothing, and is not the cache's", addr))
		}
		return all, nil
	})
}

// cacheServers returns the cache's masters, by the account that is able to read them.
func (e *Exam) cacheServers(ctx context.Context) (servers []string, err error) {
	var ask *keyspace.Nodes
	for _, n := range []need{aRedis, auditRedis} {
		if _, reason := e.lacks([]need{n}); reason == nil {
			ask = e.redis(n)
		}
	}
	if ask == nil {
		return nil, errors.New(Needs + string(aRedis))
	}
	err = ask.EachMaster(ctx, func(c *redis.Client) error {
		server, err := serverOf(ctx, c)
		servers = append(servers, server)
		return err
	})
	return servers, err
}

// serverOf returns the identity of a server, which changes when it restarts.
func serverOf(ctx context.Context, c *redis.Client) (string, error) {
	text, err := c.Info(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("ask for INFO server: %w", err)
	}
	if id := redisclient.Facts(text)["run_id"]; strings.Trim(id, "0") != "" {
		return id, nil
	}
	return "", errors.New("INFO server tells no run_id") // as in some managed services
}
