package worker

import (
	"context"
	"maps"
	"time"

	"github.com/unstale/unstale/internal/store"
)

const (
	positionsLife    = 10 * time.Minute // after which the journal is asked again, since batches expire
	positionsOverlap = 30 * time.Second // longer than any settlement
	positionsBatches = 8                // of this worker that cost as much to read, with what overlaps, as one epoch to ask for
)

// knownPositions remember the last position of each epoch in the journal. There may be thousands, of processes that are
// long gone; what changes is asked for every few seconds, the rest seldom. Owned by the loop.
type knownPositions struct {
	last map[string]uint64
	read time.Time // all of it
	seen time.Time // the latest changes
}

// recent brings the positions up to date with what was settled since the last call.
func (l *knownPositions) recent(ctx context.Context, store *store.Store) (map[string]uint64, error) {
	now := time.Now()
	if l.last == nil || now.Sub(l.read) > positionsLife {
		return l.all(ctx, store)
	}
	positions, err := store.RecentPositions(ctx, now.Sub(l.seen)+positionsOverlap)
	if err != nil {
		return nil, err
	}
	for _, b := range positions {
		l.last[b.Epoch] = max(l.last[b.Epoch], b.N)
	}
	l.seen = now
	return maps.Clone(l.last), nil
}

// all asks the journal again.
func (l *knownPositions) all(ctx context.Context, store *store.Store) (map[string]uint64, error) {
	now := time.Now()
	positions, err := store.LastPositions(ctx)
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

// isBusy reports whether this worker, whose last position is given, has settled so much since the last call that asking
// for every epoch is faster than reading what was settled, for which every row would wait.
func (l *knownPositions) isBusy(epoch string, position uint64) bool {
	return position-l.last[epoch] > uint64(positionsBatches*(len(l.last)+1))
}
