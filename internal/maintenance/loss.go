package maintenance

import "github.com/unstale/unstale/internal/store"

// A loss is an epoch that Redis does not have up to its last position in the journal.
type loss struct {
	store.Position // the last that Redis still has
	// adopt is set if Redis has no data at all, so nothing of the epoch can be stale. The epoch's
	// batches then move to this position, which Redis has.
	adopt store.Position
	// batches is the number of batches to heal, at most.
	batches uint64
}

func (l loss) isAdopted() bool { return l.adopt != store.Position{} }
