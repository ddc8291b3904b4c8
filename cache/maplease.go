package cache

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A mapLease is the configured lease, and the shortest one of the maps of the reader's sources.
// Safe for concurrent use, except beat.
type mapLease struct {
	configured time.Duration
	longest    atomic.Int64     // of the maps, in milliseconds; zero: unknown
	told       atomic.Bool      // the log reports that it is shorter
	beats      map[string]int64 // as heartbeats of each source say
}

// field records what a server says.
func (l *mapLease) field(longest int64, logger *slog.Logger) {
	if longest > 0 && l.longest.Load() != longest {
		l.set(longest, logger)
	}
}

// beat records what a heartbeat says. Fields count if there are any.
func (l *mapLease) beat(b *protocol.Beat, fields bool, logger *slog.Logger) {
	if b.Lease <= 0 {
		return
	}
	l.beats[b.Source] = b.Lease
	if fields {
		return
	}
	longest := b.Lease
	for _, other := range l.beats {
		longest = min(longest, other)
	}
	l.field(longest, logger)
}

func (l *mapLease) set(longest int64, logger *slog.Logger) {
	l.longest.Store(longest)
	err := l.healthy()
	if (err != nil) == l.told.Swap(err != nil) {
		return
	}
	if err != nil {
		logger.LogAttrs(context.Background(), slog.LevelWarn, "the configured lease is longer than the map's", slog.Any("error", err))
	} else {
		logger.LogAttrs(context.Background(), slog.LevelInfo, "the configured lease is no longer than the map's")
	}
}

// get returns the shorter one.
func (l *mapLease) get() time.Duration {
	if longest := time.Duration(l.longest.Load()) * time.Millisecond; longest > 0 {
		return min(l.configured, longest)
	}
	return l.configured
}

// healthy returns an error if the map's is shorter.
func (l *mapLease) healthy() error {
	if longest := l.get(); longest < l.configured {
		return fmt.Errorf("Config.Lease is %v, and the map's lease is %v, which counts: lower Config.Lease, or raise lease in the map", l.configured, longest)
	}
	return nil
}
