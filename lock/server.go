package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/redisclient"
)

// onRedis is a Backend that keeps locks in instances of Redis.
type onRedis interface {
	instances() []redis.UniversalClient
}

func (r Redis) instances() []redis.UniversalClient { return []redis.UniversalClient{r.Client} }

// CheckServer returns what is wrong with the place where locks are kept: a Redis that may evict them, or that forgets them when
// it restarts, as a cache's is meant to, or one on which a worker keeps a cache. In Cluster it asks every master. It needs the rights
// +info +scan +pubsub|numsub, which locks do not; an error wraps what Redis says where one is missing. A cache is told by what
// workers leave in the database, of which it looks at some 10,000 keys, and by the default channel of their wake-ups. Of other
// backends it asks nothing. Call it at start-up, or in a check before a deploy.
func (l *Locker) CheckServer(ctx context.Context) error {
	backend, ok := l.config.Backend.(onRedis)
	if !ok {
		return nil
	}
	var faults []error
	for _, client := range backend.instances() {
		faults = append(faults, redisclient.CheckState(ctx, client))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
