package limit

import (
	"context"
	"fmt"

	"github.com/unstale/unstale/internal/redisclient"
)

// CheckServer returns what is wrong with the place where counts are kept: an instance that may
// evict them, or that forgets them when it restarts, as a cache's is meant to, or one on which a
// worker keeps a cache. In Cluster it asks every master. It needs the rights +info +scan
// +pubsub|numsub, which attempts do not; an error wraps what Redis says where one is missing. A
// cache is told by what workers leave in the database, of which it looks at some 10,000 keys, and
// by the default channel of their wake-ups. Call it at start-up, or in a check before a deploy.
func (l *Limiter) CheckServer(ctx context.Context) error {
	if err := redisclient.CheckState(ctx, l.config.Redis); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	return nil
}
