package worker

import (
	"slices"
	"sync"
	"time"

	"github.com/unstale/unstale/internal/store"
)

// heavyNews is how long a worker has heavy rows before its status record tells. Most are processed
// sooner.
const heavyNews = 200 * time.Millisecond

// A heavyRows holds the heavy rows that the loop has set aside or processes, for other goroutines.
// They wait for their turn: no other session has them locked, and more workers would not help. Safe
// for concurrent use.
type heavyRows struct {
	mu    sync.Mutex
	ids   [store.ListedTables][]uint64
	since time.Time // zero: none
}

// set records the rows of both tables.
func (h *heavyRows) set(hot, due []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids[store.ListedHot] = append(h.ids[store.ListedHot][:0], hot...)
	h.ids[store.ListedDue] = append(h.ids[store.ListedDue][:0], due...)
	switch {
	case len(hot)+len(due) == 0:
		h.since = time.Time{}
	case h.since.IsZero():
		h.since = time.Now()
	}
}

// lasts returns for how long there have been such rows without a break, nil for less than
// heavyNews.
func (h *heavyRows) lasts() *time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return nil
	}
	d := time.Since(h.since)
	if d < heavyNews {
		return nil
	}
	return &d
}

// without drops such rows from a list.
func (h *heavyRows) without(table store.ListedTable, rows []lateRow) []lateRow {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(rows, func(r lateRow) bool { return slices.Contains(h.ids[table], r.ID) })
}
