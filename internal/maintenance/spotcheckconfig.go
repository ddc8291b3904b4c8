package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// SpotConfig configures a Checker.
type SpotConfig struct {
	Redis SpotRedis
	// Publish announces the keys of repaired entries, which readers may have in memory.
	Publish func(context.Context, keyspace.News) (keyspace.Published, error)
	// Note writes the results of all checks of the batches that were settled in a minute, in place
	// of the earlier ones. A check counts from its first look on.
	Note func(context.Context, store.Minute, store.Checks) error
	// Keep stores stale entries for operators.
	Keep    func(context.Context, []SpotStale) error
	Metrics SpotMetrics
	Log     *slog.Logger

	Rate    int         // keys per second; 0: nothing is checked
	Resting func() bool // no look now, for example in an outage
	Healing func() bool // SpotRedis may lack writes, so nothing is stale for certain
}

// SpotRedis looks at entries and unlinks those that are stale.
type SpotRedis interface {
	Look(ctx context.Context, asked []keyspace.Asked) ([]keyspace.Seen, []*keyspace.Master, error)
	Repair(ctx context.Context, key, head string, held bool) (bool, error)
}

// SpotMetrics measure checks.
type SpotMetrics interface {
	// Looked counts keys that were looked at. Each check has up to three looks.
	Looked(keys int)
	Checked(SpotResult)
	Repaired()
	// Off sets whether the account of Redis may look at entries, and repair them.
	Off(looks, repairs bool)
}

// A Result is the result of a check.
type SpotResult string

// The results. Results lists them.
const (
	Fresh   SpotResult = "fresh"  // the entry is later than the UNLINK
	Found   SpotResult = "stale"  // it is earlier, or exists during a hold
	Absent  SpotResult = "absent" // there is no entry
	Unknown SpotResult = "unknown"
)

// Results are all results.
var Results = []SpotResult{Fresh, Found, Absent, Unknown}

// A Stale is a stale entry.
type SpotStale struct {
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
