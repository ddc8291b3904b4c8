package caches

import (
	"context"
	"errors"
	"time"

	"github.com/unstale/unstale/internal/servers"
)

// heardWithin is how long a process may return an old value from its memory before it counts as not
// notified. Package cache promises one second. The rest allows for a busy machine.
const heardWithin = 5 * time.Second

// A race is an interleaving of a read and a write.
type race struct {
	Name  string
	About string
	fits  func(peer) bool
	run   func(context.Context, *trial) error
}

func every(peer) bool       { return true }
func deletes(p peer) bool   { return !p.Ours }
func hasTags(p peer) bool   { return p.Tags }
func remembers(p peer) bool { return p.Memory > 0 }

var races = []race{
	{"cached", "Redis has the old value; commit; deletion (ours: by the worker, others: the library's own)", every,
		func(ctx context.Context, t *trial) error { return t.cached(ctx) }},
	{"deleted", "a load has read the old row; commit; the library's own deletion; the load continues", deletes,
		func(ctx context.Context, t *trial) error {
			return t.inFlight(ctx, func() error { return t.invalidate(ctx, byItself) })
		}},
	{"unlinked", "the same, deleted by the worker: UNLINK, PUBLISH", every,
		func(ctx context.Context, t *trial) error {
			return t.inFlight(ctx, func() error { return t.invalidate(ctx, byWorker) })
		}},
	{"tag", "the same, by a tag of the value", hasTags,
		func(ctx context.Context, t *trial) error {
			return t.inFlight(ctx, func() error { return t.invalidateTag(ctx) })
		}},
	{"redis empty", "the same, and Redis is killed and comes back empty before the commit", every,
		func(ctx context.Context, t *trial) error {
			return t.inFlight(ctx, func() error { return t.restart(ctx, t.way()) })
		}},
	{"memory", "a process has the old value in memory; commit; deletion in another process", remembers,
		func(ctx context.Context, t *trial) error {
			return t.inMemory(ctx, func(*servers.Link) error { return t.invalidate(ctx, t.way()) })
		}},
	{"memory, cut", "the same, while its connections to Redis are cut", remembers,
		func(ctx context.Context, t *trial) error {
			return t.inMemory(ctx, func(l *servers.Link) error {
				l.Close()
				return errors.Join(t.invalidate(ctx, t.way()), l.Open(), t.connected(ctx, t.open[0]))
			})
		}},
	{"memory, redis empty", "the same, and Redis is killed and comes back empty before the commit", remembers,
		func(ctx context.Context, t *trial) error {
			return t.inMemory(ctx, func(*servers.Link) error { return t.restart(ctx, t.way()) })
		}},
	{"died", "the application commits and dies before it deletes anything", every,
		func(ctx context.Context, t *trial) error { return t.died(ctx) }},
}

// A way is how a key is deleted.
type way int

const (
	byItself way = iota // by the library, in a separate process
	byWorker            // by a row of the outbox
)

// The places where an old value was found. All reads came after the deletion.
const (
	placeSame   = "same process"  // to a caller while the load was still under way
	placeOther  = "other process" // likewise
	placeRedis  = "Redis"         // stays there
	placeLater  = "later"         // to callers after the race had ended
	placeMemory = "memory"        // from the memory of a process, for more than heardWithin
)

// An outcome is the result of a race.
type outcome struct {
	Race string   `json:"race"`
	Peer string   `json:"peer"`
	Old  []string `json:"old"` // where; none is right
	// for how long an old value in Redis is given out
	For  time.Duration `json:"redis_keeps_ns"`
	Kept time.Duration `json:"memory_keeps_ns"`       // for how long one in memory is
	Left string        `json:"redis_holds,omitempty"` // afterwards: old, new, nothing
}
