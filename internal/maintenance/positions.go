package maintenance

import (
	"context"
	"maps"
	"time"

	"github.com/unstale/unstale/internal/store"
)

const (
	// Batches expire, so all positions are read again after this time.
	positionsLife    = 10 * time.Minute
	positionsOverlap = 30 * time.Second // longer than any settlement
	// isBusy: reading this many of this worker's batches, including the overlap, costs as much as
	// querying one epoch.
	positionsBatches = 8
)

// knownPositions caches the last position of each epoch in the journal. There may be thousands of
// epochs of processes that are long gone, so changes are read every few seconds and the full list
// rarely. Owned by the loop.
type knownPositions struct {
	last map[string]uint64
	read time.Time // all of it
	seen time.Time // the latest changes
}

// recent returns the positions, updated with the batches settled since the last call.
func (l *knownPositions) recent(ctx context.Context, from *store.Journal) (map[string]uint64, error) {
	now := time.Now()
	if l.last == nil || now.Sub(l.read) > positionsLife {
		return l.all(ctx, from)
	}
	positions, err := from.RecentPositions(ctx, now.Sub(l.seen)+positionsOverlap)
	if err != nil {
		return nil, err
	}
	for _, b := range positions {
		l.last[b.Epoch] = max(l.last[b.Epoch], b.N)
	}
	l.seen = now
	return maps.Clone(l.last), nil
}

// all returns the positions, read from the journal in full.
func (l *knownPositions) all(ctx context.Context, from *store.Journal) (map[string]uint64, error) {
	now := time.Now()
	positions, err := from.LastPositions(ctx)
	if err != nil {
		return nil, err
	}
	l.last = make(map[string]uint64, len(positions))
	for _, b := range positions {
		l.last[b.Epoch] = b.N
	}
	l.read, l.seen = now, now
	return maps.Clone(l.last), nil
}

// isBusy reports whether this worker, now at position, has settled so much since the last call that
// querying every epoch is faster than reading the settled batches. Every row would wait for that
// read.
func (l *knownPositions) isBusy(epoch string, position uint64) bool {
	return position-l.last[epoch] > uint64(positionsBatches*(len(l.last)+1))
}
