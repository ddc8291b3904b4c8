package cache

import "sync/atomic"

// Statistics count since New, but for L1Size, and do not go back. Every key that Fetch, FetchMany or Get look for is one
// request, whatever comes of it; a call that is refused, as after Close, looks for none.
type Statistics struct {
	L1Hits        uint64  `json:"l1Hits"`        // from this process' memory
	L2Hits        uint64  `json:"l2Hits"`        // from Redis, stale ones and negative ones among them
	Misses        uint64  `json:"misses"`        // all others
	Sets          uint64  `json:"sets"`          // values that Redis took
	Refused       uint64  `json:"refused"`       // values that Redis refused, since an invalidation came before them
	Loads         uint64  `json:"loads"`         // calls of loaders
	LoadErrors    uint64  `json:"loadErrors"`    // of which failed, ErrNotFound not among them
	Errors        uint64  `json:"errors"`        // values that could not be stored, or prolonged, for another reason
	Unsettled     uint64  `json:"unsettled"`     // calls that had to load, since their caller's writes are not known to be settled
	Invalidations uint64  `json:"invalidations"` // keys, tags and patterns that were heard or deleted here
	L1Size        int     `json:"l1Size"`        // values in memory now, roughly
	L1Overflows   uint64  `json:"l1Overflows"`   // values not kept, since too much was evicted during their load
	L1Evictions   uint64  `json:"l1Evictions"`   // values that memory dropped or did not take because it was full
	PatternErrors uint64  `json:"patternErrors"` // messages with a pattern that cannot be compiled: each has emptied memory
	Strays        uint64  `json:"strays"`        // answers of a server that workers had left: none was used
	Unreported    uint64  `json:"unreported"`    // messages heard that Memory.Report should tell of and does not
	TotalRequests uint64  `json:"totalRequests"`
	HitRate       float64 `json:"hitRate"` // hits of either kind by requests, 0 without any
}

type counts struct {
	l2Hits, misses, sets, refused, loads, loadErrors, errors, deleted, unsettled, strays, patternErrors atomic.Uint64
}

func (c *counts) read(s state) {
	if s >= stale {
		c.l2Hits.Add(1)
	} else {
		c.misses.Add(1)
	}
}

func (c *counts) loaded(err error) {
	c.loads.Add(1)
	if err != nil && !isNotFound(err) {
		c.loadErrors.Add(1)
	}
}

func (c *counts) filled(accepted bool) {
	if accepted {
		c.sets.Add(1)
	} else {
		c.refused.Add(1)
	}
}

func (c *counts) failed() { c.errors.Add(1) }

// Statistics returns what was counted so far.
func (c *Cache) Statistics() Statistics {
	n := &c.counts
	s := Statistics{
		L2Hits: n.l2Hits.Load(), Misses: n.misses.Load(), Sets: n.sets.Load(), Refused: n.refused.Load(),
		Loads: n.loads.Load(), LoadErrors: n.loadErrors.Load(), Errors: n.errors.Load(), Invalidations: n.deleted.Load(), Unsettled: n.unsettled.Load(), Strays: n.strays.Load(),
	}
	if m := c.memory; m != nil {
		s.L1Hits = m.hits.Snapshot().Hits
		s.L1Size = m.store.EstimatedSize()
		s.L1Evictions = m.room.full.Load()
		s.L1Overflows, s.PatternErrors = m.overflow.total.Load(), n.patternErrors.Load()
		s.Invalidations += m.evicted.Load()
		s.Unreported = c.reports.dropCount()
	}
	s.TotalRequests = s.L1Hits + s.L2Hits + s.Misses
	if s.TotalRequests > 0 {
		s.HitRate = float64(s.L1Hits+s.L2Hits) / float64(s.TotalRequests)
	}
	return s
}
