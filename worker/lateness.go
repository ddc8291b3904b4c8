package worker

import (
	"time"

	"github.com/unstale/unstale/internal/store"
)

// late measures how late the keys of a settled claim's rows were unlinked. Repeats are left out, which are late on
// purpose, and so is what an application has scheduled.
//
// Nobody tells when a row was committed. It became visible after it was inserted and, if a look at the whole table had
// not found it, after that look: the later of both bounds from above for how long its keys were stale.
func (m *metrics) late(s *store.Store, c *store.Claim, done []uint64, unlinked time.Time) {
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
		age := s.Age(r, unlinked)
		m.insertToUnlink.add(age)
		if c.IsDelayed() {
			continue
		}
		visible := age
		if !c.Unseen.IsZero() {
			visible = min(age, unlinked.Sub(c.Unseen))
		}
		m.visibleToUnlink.add(visible)
	}
}
