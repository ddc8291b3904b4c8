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

// CheckServer returns an error if the server of the locks is unsuitable: a Redis that may evict
// them, or loses them at a restart, as a cache does, or one that a worker uses as a cache. In a
// Cluster it asks every master, and with a Redlock every instance. It checks nothing for other
// backends.
//
// It needs the permissions +info +scan +pubsub|numsub, which locks do not need. An error wraps the
// reply of Redis if one is missing. CheckServer recognizes a cache by keys of workers, among some
// 10,000 keys of the database, and by the default wake-up channel.
//
// Call it at startup, or in a check before a deployment.
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
