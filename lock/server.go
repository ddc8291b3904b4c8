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

func (r Redlock) instances() (all []redis.UniversalClient) {
	for _, client := range r.Clients {
		all = append(all, client)
	}
	return all
}

// CheckServer returns what is wrong with the place where locks are kept: a Redis that may evict them, or that forgets them when
// it restarts, as a cache's is meant to, or one on which a worker keeps a cache. In Cluster it asks every master, and of a Redlock
// every instance. It needs the rights +info +scan +pubsub|numsub, which locks do not; an error wraps what Redis says where one is
// missing. A cache is told by what workers leave in the database, of which it looks at some 10,000 keys, and by the default channel
// of their wake-ups. Of other backends it asks nothing. Call it at start-up, or in a check before a deploy.
func (l *Locker) CheckServer(ctx context.Context) error {
	backend, ok := l.config.Backend.(onRedis)
	if !ok {
		return nil
	}
	var faults []error
	for i, client := range backend.instances() {
		err := redisclient.CheckState(ctx, client)
		if _, several := backend.(Redlock); several && err != nil {
			err = fmt.Errorf("Redlock.Clients[%d]: %w", i, err)
		}
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
