package worker

import (
	"context"
	"maps"
	"time"

	"github.com/unstale/unstale/internal/store"
)

const (
	ledgerLife    = 10 * time.Minute // after which the journal is asked anew, since batches expire
	ledgerOverlap = 30 * time.Second // longer than any settlement
	ledgerBatches = 8                // of this worker that cost as much to read, with what overlaps, as one epoch to ask for
)

// A ledger remembers the last beat of each epoch in the journal. There may be thousands, of processes that are long gone;
// what changes is asked for every few seconds, the rest seldom. Owned by the loop.
type ledger struct {
	last map[string]uint64
	read time.Time // all of it
	seen time.Time // the latest changes
}

// recent brings the ledger up to date with what was settled since the last call.
func (l *ledger) recent(ctx context.Context, store *store.Store) (map[string]uint64, error) {
	now := time.Now()
	if l.last == nil || now.Sub(l.read) > ledgerLife {
		return l.all(ctx, store)
	}
	beats, err := store.RecentBeats(ctx, now.Sub(l.seen)+ledgerOverlap)
	if err != nil {
		return nil, err
	}
	for _, b := range beats {
		l.last[b.Epoch] = max(l.last[b.Epoch], b.N)
	}
	l.seen = now
	return maps.Clone(l.last), nil
}

// all asks the journal anew.
func (l *ledger) all(ctx context.Context, store *store.Store) (map[string]uint64, error) {
	now := time.Now()
	beats, err := store.LastBeats(ctx)
	if err != nil {
		return nil, err
	}
	l.last = make(map[string]uint64, len(beats))
	for _, b := range beats {
		l.last[b.Epoch] = b.N
	}
	l.read, l.seen = now, now
	return maps.Clone(l.last), nil
}

// isBusy says whether this worker, whose last beat is given, has settled so much since the last call that asking for every
// epoch is faster than reading what was settled, for which every row would wait.
func (l *ledger) isBusy(epoch string, beat uint64) bool {
	return beat-l.last[epoch] > uint64(ledgerBatches*(len(l.last)+1))
}

// forget drops an epoch whose batches belong to another one now.
func (l *ledger) forget(epoch string) { delete(l.last, epoch) }
