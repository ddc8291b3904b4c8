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

const (
	// probePause is the time between two write probes while no server is suspected.
	probePause = 30 * time.Second
	// doubtPause is probePause while answers have no young field of [protocol.AliveKey]: the server
	// may be a master that was demoted.
	doubtPause = time.Second
)

// errReplica is returned for a server that refuses to write.
var errReplica = fmt.Errorf("%w: the server is a replica, which lags behind an UNLINK: lead the client to the master, and turn off ReplicaOnly of a failover client", ErrRedisConnection)

// A replica records that a server refused to write. From then on no answer is used until a server
// accepts a write: a replica answers reads, and has the fields of the workers too. The zero value
// suspects nothing. Safe for concurrent use.
type replica struct {
	until atomic.Int64 // no probe until then, in Unix nanoseconds; zero: no suspicion
	next  atomic.Int64 // when the next pipeline takes a write probe along, likewise
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

// due reports whether the next pipeline takes a write probe along.
func (r *replica) due(now time.Time) bool {
	return r.suspected() || now.UnixNano() >= r.next.Load()
}

// takes reports whether a pipeline that is sent now takes a write probe along: one of several
// concurrent ones, or each while a server is suspected.
func (r *replica) takes(now time.Time) bool {
	next := r.next.Load()
	return r.suspected() || now.UnixNano() >= next && r.next.CompareAndSwap(next, now.Add(probePause).UnixNano())
}

// doubt makes a probe due doubtPause after the latest one, instead of probePause.
func (r *replica) doubt(now time.Time) {
	if next := r.next.Load(); next > now.Add(doubtPause).UnixNano() {
		r.next.CompareAndSwap(next, next-int64(probePause-doubtPause))
	}
}

// suspected reports whether a server has refused a write and none has accepted one since.
func (r *replica) suspected() bool { return r.until.Load() != 0 }

// pauses reports whether nothing is sent now.
func (r *replica) pauses(now time.Time) bool { return now.UnixNano() < r.until.Load() }
