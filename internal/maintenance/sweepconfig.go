package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

const (
	patternsOfAScan = 10_000
	bytesOfAScan    = 2 << 20 // of patterns
	setsOfABatch    = 500     // as many as one row of the journal takes
	bytesOfABatch   = 1 << 20 // of the names of sets
)

var (
	// ErrSweepPaused ends sweeps that an operator's pause finds under way. Their requests wait.
	ErrSweepPaused = errors.New("all workers are paused")
	// ErrElsewhere reports that another worker sweeps.
	ErrElsewhere = errors.New("another worker sweeps")
)

// sweepPeriod is how often a Sweeper checks for requests of other workers.
const sweepPeriod = time.Second

// SweepConfig configures a Sweeper.
type SweepConfig struct {
	Requests *store.Sweeps
	Redis    SweepRedis
	// Lease returns the longest lease that a reader may hold.
	Lease func(context.Context) (time.Duration, error)
	// Publish announces the names that were unlinked.
	Publish func(context.Context, keyspace.News) (keyspace.Published, error)
	Map     interface{ Version() string } // the one in use
	Health  SweepHealth
	Metrics SweepMetrics
	Log     *slog.Logger

	Paused func() bool  // whether an operator has paused all workers, or may have
	Hung   func() error // why a COMMIT counts as hung, nil if none does
	Lost   func()       // called when Redis has lost what it had acknowledged
}

// SweepRedis sweeps.
type SweepRedis interface {
	Sweep(ctx context.Context, patterns []string, watch func(keyspace.Progress)) (keyspace.SweepResult, error)
	TakeSet(ctx context.Context, set string, id uint64, gone func(members []string) error) (keyspace.TakenSet, error)
	TakeSets(ctx context.Context, requests []keyspace.SetRequest, gone func(members []string) error) (keyspace.TakenSets, error)
}

// SweepHealth records whether sweeps work.
type SweepHealth interface {
	SweepFailed(error)
	// SweepDone reports whether sweeps had failed.
	SweepDone() bool
	SweptElsewhere()
}

// SweepMetrics measure sweeps.
type SweepMetrics interface {
	// Call begins a call to MySQL, which ends with the function that it returns.
	Call() (end func())
	// Took records the duration of a keyspace scan or of a batch of index sets.
	Took(time.Duration)
	// Swept counts finished sweeps and the keys that they unlinked.
	Swept(sweeps int, keys int64)
	// SoFar sets how far the sweeps of a kind are.
	SoFar(kind store.SweepKind, done, size int64)
}
