package limit

import (
	"context"
	"fmt"

	"github.com/unstale/unstale/internal/redisclient"
)

// CheckServer returns an error if Config.Redis is not suitable for counts: if it may evict keys, if
// it does not persist them, or if it is the server of a cache that a worker invalidates. It detects
// such a cache by the keys of workers, among up to about 10,000 keys, and by subscribers of the
// default wake-up channel. In Cluster, it checks every master.
//
// Call it at startup or before a deployment. It needs the ACL permissions +info, +scan and
// +pubsub|numsub. Take does not need them. If one is missing, the error wraps the error of Redis.
func (l *Limiter) CheckServer(ctx context.Context) error {
	if err := redisclient.CheckState(ctx, l.config.Redis); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	return nil
}
