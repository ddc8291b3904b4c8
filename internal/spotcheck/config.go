package spotcheck

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/minutes"
)

// Config configures a Checker.
type Config struct {
	Redis Redis
	// Publish announces the keys of repaired entries, which readers may have in memory.
	Publish func(context.Context, keyspace.News) (keyspace.Published, error)
	// Note writes the results of all checks of the batches that were settled in a minute, in place
	// of the earlier ones. A check counts from its first look on.
	Note func(context.Context, minutes.Minute, minutes.Checks) error
	// Keep stores stale entries for operators.
	Keep    func(context.Context, []Stale) error
	Metrics Metrics
	Log     *slog.Logger

	Rate    int         // keys per second; 0: nothing is checked
	Resting func() bool // no look now, for example in an outage
	Healing func() bool // Redis may lack writes, so nothing is stale for certain
}

// Redis looks at entries and unlinks those that are stale.
type Redis interface {
	Look(ctx context.Context, asked []keyspace.Asked) ([]keyspace.Seen, []*keyspace.Master, error)
	Repair(ctx context.Context, key, head string, held bool) (bool, error)
}

// Metrics measure checks.
type Metrics interface {
	// Looked counts keys that were looked at. Each check has up to three looks.
	Looked(keys int)
	Checked(Result)
	Repaired()
	// Off sets whether the account of Redis may look at entries, and repair them.
	Off(looks, repairs bool)
}

// A Result is the result of a check.
type Result string

// The results. Results lists them.
const (
	Fresh   Result = "fresh"  // the entry is later than the UNLINK
	Found   Result = "stale"  // it is earlier, or exists during a hold
	Absent  Result = "absent" // there is no entry
	Unknown Result = "unknown"
)

// Results are all results.
var Results = []Result{Fresh, Found, Absent, Unknown}

// A Stale is a stale entry.
type Stale struct {
	Key, Entity, ID, Trace string
	Row                    uint64
	Position               keyspace.Position // of the batch
	SettledAt              time.Time         // by the database's clock
	LeasedAt               time.Time         // of the entry, by the clock of Redis; zero: not known
	UnlinkedAt             time.Time         // before the UNLINK, by the same clock
	SeenAt                 time.Time         // by the same clock
	ExpiresAt              time.Time         // of the entry; zero: not known
	Held                   bool              // it was there during a hold
	After                  time.Duration
	Repaired               bool
}
