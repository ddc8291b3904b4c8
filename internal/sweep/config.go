package sweep

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/sweeps"
)

const (
	patternsOfAScan = 10_000
	bytesOfAScan    = 2 << 20 // of patterns
	setsOfABatch    = 500     // as many as one row of the journal takes
	bytesOfABatch   = 1 << 20 // of the names of sets
)

var (
	// ErrPaused ends sweeps that an operator's pause finds under way. Their requests wait.
	ErrPaused = errors.New("all workers are paused")
	// ErrElsewhere reports that another worker sweeps.
	ErrElsewhere = errors.New("another worker sweeps")
)

// period is how often a Sweeper checks for requests of other workers.
const period = time.Second

// Config configures a Sweeper.
type Config struct {
	Requests *sweeps.Table
	Redis    Redis
	// Lease returns the longest lease that a reader may hold.
	Lease func(context.Context) (time.Duration, error)
	// Publish announces the names that were unlinked.
	Publish func(context.Context, keyspace.News) (keyspace.Published, error)
	Map     interface{ Version() string } // the one in use
	Health  Health
	Metrics Metrics
	Log     *slog.Logger

	Paused func() bool  // whether an operator has paused all workers, or may have
	Hung   func() error // why a COMMIT counts as hung, nil if none does
	Lost   func()       // called when Redis has lost what it had acknowledged
}

// Redis sweeps.
type Redis interface {
	Sweep(ctx context.Context, patterns []string, watch func(keyspace.Progress)) (keyspace.SweepResult, error)
	TakeSet(ctx context.Context, set string, id uint64, gone func(members []string) error) (keyspace.TakenSet, error)
	TakeSets(ctx context.Context, requests []keyspace.SetRequest, gone func(members []string) error) (keyspace.TakenSets, error)
}

// Health records whether sweeps work.
type Health interface {
	SweepFailed(error)
	// SweepDone reports whether sweeps had failed.
	SweepDone() bool
	SweptElsewhere()
}

// Metrics measure sweeps.
type Metrics interface {
	// Call begins a call to MySQL, which ends with the function that it returns.
	Call() (end func())
	// Took records the duration of a keyspace scan or of a batch of index sets.
	Took(time.Duration)
	// Swept counts finished sweeps and the keys that they unlinked.
	Swept(sweeps int, keys int64)
	// SoFar sets how far the sweeps of a kind are.
	SoFar(kind sweeps.SweepKind, done, size int64)
}
