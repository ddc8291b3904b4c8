package worker

import (
	"slices"

	"github.com/unstale/unstale/internal/store"
)

// An asideList has the IDs of the heavy rows of a queue that batches of light rows have left in the
// table, the oldest first. Claims of light rows pass them over. The list may be out of date: a row
// in it may be gone, and a later claim finds a row that is missing. Owned by the loop.
type asideList struct{ ids []uint64 }

// add appends rows, as many as a claim can pass over. A later claim finds the others again.
func (a *asideList) add(ids []uint64) {
	for _, id := range ids {
		if len(a.ids) == store.MaxNamed {
			return
		}
		if !slices.Contains(a.ids, id) {
			a.ids = append(a.ids, id)
		}
	}
}

// first returns at most n rows, the oldest ones.
func (a *asideList) first(n int) []uint64 { return slices.Clone(a.ids[:min(n, len(a.ids))]) }

// remove drops rows from the list.
func (a *asideList) remove(ids []uint64) {
	a.ids = slices.DeleteFunc(a.ids, func(id uint64) bool { return slices.Contains(ids, id) })
}

// putBack moves rows behind the others.
func (a *asideList) putBack(ids []uint64) {
	a.remove(ids)
	a.add(ids)
}
