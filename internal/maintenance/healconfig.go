package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

const (
	// Interval is the time between two comparisons of all epochs.
	Interval = 5 * time.Second
	// Slice is about how long Some heals, before new rows have their turn.
	Slice = 100 * time.Millisecond
	// HealPause is the wait while other workers heal what is left.
	HealPause = 50 * time.Millisecond

	firstClaim       = 25              // batches, which must not take longer than a slice
	progressInterval = 5 * time.Second // between two lines in the log
)

// HealConfig configures a Healer.
type HealConfig struct {
	Redis   HealRedis
	Journal *store.Journal
	// Publish announces the keys that were unlinked.
	Publish func(context.Context, keyspace.News) (keyspace.Published, error)
	Metrics HealMetrics
	Log     *slog.Logger

	Limit   time.Duration      // of one claim of batches, until it is settled
	Healing func(lost bool)    // called before each slice: unlinks are lost, or Redis only is empty
	Healed  func(epoch string) // called when Redis has everything, as of an epoch of the beacon
	Turn    func()             // called after each claim, while many follow each other
}

// HealRedis compares the beacons with positions of the journal and unlinks keys.
type HealRedis interface {
	CheckBeacon(context.Context) (keyspace.Position, error)
	Survived(ctx context.Context, epochs []string) (map[string]uint64, error)
	ConfirmMoved(ctx context.Context, last map[string]uint64) error
	Unlink(ctx context.Context, targets []keyspace.Target) (keyspace.Unlinked, error)
}

// HealMetrics measure healing.
type HealMetrics interface {
	// Positions and Call begin a call to MySQL, which ends with the function that they return.
	// Positions is for reading the positions of the journal, and Call for every other call.
	Positions() (end func())
	Call() (end func())
	Began()
	Did(batches, keys int)
	// Left sets how many batches may still have to be unlinked again.
	Left(batches uint64)
	Over()
}
