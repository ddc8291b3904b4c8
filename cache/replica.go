package cache

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// replicaPause is for how long nothing is sent after a server answered READONLY.
const replicaPause = time.Second

// errReplica is returned for a server that refuses to write.
var errReplica = fmt.Errorf("%w: the server is a replica, which lags behind an UNLINK: lead the client to the master, and turn off ReplicaOnly of a failover client", ErrRedisConnection)

// A replica remembers that a server refused to write. No answer is used from then on until a server accepts a
// write: a replica answers reads, and has the workers' fields too. Its zero value suspects nothing. Safe for
// concurrent use.
type replica struct {
	until atomic.Int64 // nothing is sent until then, as Unix nanoseconds; zero: not suspected
}

// found records a refusal.
func (r *replica) found(logger *slog.Logger) {
	if r.until.Swap(time.Now().Add(replicaPause).UnixNano()) == 0 {
		logger.LogAttrs(context.Background(), slog.LevelError, "Redis is a replica: every call loads", slog.Any("error", errReplica))
	}
}

// accepted records that a server accepted a write probe.
func (r *replica) accepted(logger *slog.Logger) {
	if r.until.Load() != 0 && r.until.Swap(0) != 0 {
		logger.LogAttrs(context.Background(), slog.LevelInfo, "Redis takes writes again")
	}
}

// suspected reports whether pipelines take a write probe along.
func (r *replica) suspected() bool { return r.until.Load() != 0 }

// pauses reports whether nothing is sent now.
func (r *replica) pauses(now time.Time) bool { return now.UnixNano() < r.until.Load() }
