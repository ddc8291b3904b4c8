package worker

import (
	"time"

	"github.com/unstale/unstale/internal/store"
)

// late measures how late the keys of the rows of a settled claim were unlinked. It leaves out
// repeats, which are late on purpose, and scheduled rows.
//
// The commit time of a row is unknown. The row became visible after it was inserted. If a scan of
// the whole table had not found it, it became visible after that scan. The later of both times is
// an upper bound for how long its keys were stale.
func (m *metrics) late(ageOf func(*store.ClaimedRow, time.Time) time.Duration, c *store.Claim, done []uint64, unlinked time.Time) {
	m.insertToUnlink.mu.Lock()
	defer m.insertToUnlink.mu.Unlock()
	m.visibleToUnlink.mu.Lock()
	defer m.visibleToUnlink.mu.Unlock()
	for i := range c.Rows {
		r := &c.Rows[i]
		if len(done) == 0 {
			return
		}
		if r.ID != done[0] { // in the order of the rows, without those at fault
			continue
		}
		done = done[1:]
		if r.Repeated || r.FirstID == 0 {
			continue
		}
		age := ageOf(r, unlinked)
		m.insertToUnlink.add(age)
		if c.IsDelayed() {
			continue
		}
		m.visibleToUnlink.add(visible(c, age, unlinked))
	}
}
