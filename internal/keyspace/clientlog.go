package keyspace

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// SetClientLog says where the messages of the Redis client library go, which otherwise writes them to standard error:
// to log at level debug, since what matters of them comes back as errors, or nowhere when log is nil. It counts for
// every go-redis client in the process, so it is for a program to call and not for a library. It may be called at any
// time.
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
