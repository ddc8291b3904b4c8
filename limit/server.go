package limit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// CheckServer returns what is wrong with the place where counts are kept: an instance that may evict them, or that forgets them when
// it restarts, as a cache's is meant to. In Cluster it asks every master. It needs the right to INFO, which attempts do not; an
// error wraps what Redis says where that is missing. Call it at start-up, or in a check before a deploy.
func (l *Limiter) CheckServer(ctx context.Context) error {
	ask := func(ctx context.Context, node *redis.Client) error {
		text, err := node.Info(ctx).Result()
		if err != nil {
			return fmt.Errorf("limit: whether %s is fit to count is not known (the account needs +info): %w", node.Options().Addr, err)
		}
		return judge(node.Options().Addr, text)
	}
	switch client := l.config.Redis.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, ask)
	case *redis.Client:
		return ask(ctx, client)
	}
	return fmt.Errorf("limit: whether Redis is fit to count is not known: a %T cannot be asked", l.config.Redis)
}

// judge returns what INFO says against a server.
func judge(address, info string) error {
	facts := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		facts[name] = value
	}
	var faults []error
	switch policy := facts["maxmemory_policy"]; policy {
	case "noeviction":
	case "":
		faults = append(faults, fmt.Errorf("limit: %s does not say what it evicts", address))
	default:
		faults = append(faults, fmt.Errorf("limit: %s may evict counters (maxmemory-policy %s): use an instance with noeviction", address, policy))
	}
	if facts["aof_enabled"] != "1" {
		faults = append(faults, fmt.Errorf("limit: %s forgets counters when it restarts: set appendonly yes", address))
	}
	return errors.Join(faults...)
}
