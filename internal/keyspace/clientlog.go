package keyspace

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// SetClientLog sets the destination of the messages of the Redis client library, which writes them
// to standard error by default. They go to log at level debug, since relevant messages are also
// returned as errors, or nowhere if log is nil. The setting applies to every go-redis client in the
// process, so programs call it and libraries do not. It can be called at any time.
func SetClientLog(log *slog.Logger) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(clientLog{log})
}

type clientLog struct{ log *slog.Logger }

func (c clientLog) Printf(ctx context.Context, format string, args ...any) {
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.DebugContext(ctx, "redis client", "text", fmt.Sprintf(format, args...))
	}
}
