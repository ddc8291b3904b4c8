package cache

import "sync/atomic"

// Statistics count since New and only grow, except L1Size. Every key that Fetch, FetchMany or Get
// read is one request, with any outcome. A refused call, for example after Close, is not a request.
type Statistics struct {
	L1Hits uint64 `json:"l1Hits"` // from L1
	// from Redis, stale ones and negative ones among them
	L2Hits uint64 `json:"l2Hits"`
	Misses uint64 `json:"misses"` // all others
	Sets   uint64 `json:"sets"`   // values that Redis took
	// values that Redis refused, since an invalidation came before them
	Refused    uint64 `json:"refused"`
	Loads      uint64 `json:"loads"`      // calls of loaders
	LoadErrors uint64 `json:"loadErrors"` // loads that failed, without ErrNotFound
	// values that could not be stored, or prolonged, for another reason
	Errors uint64 `json:"errors"`
	// calls that had to load, since their caller's writes are not known to be settled
	Unsettled uint64 `json:"unsettled"`
	// keys, tags and patterns that were received or deleted here
	Invalidations uint64 `json:"invalidations"`
	L1Size        int    `json:"l1Size"` // values in memory now, roughly
	// values not kept, since too much was evicted during their load
	L1Overflows uint64 `json:"l1Overflows"`
	// values that memory dropped or did not take because it was full
	L1Evictions uint64 `json:"l1Evictions"`
	// messages with a pattern that cannot be compiled: each has emptied memory
	PatternErrors uint64 `json:"patternErrors"`
	// messages without a MAC of Memory.MessageKeys, or too old: only their keys and patterns were
	// evicted
	Rejected uint64 `json:"rejected"`
	// answers of a server that workers had left: none was used
	Strays uint64 `json:"strays"`
	// commands to Redis that timed out because this process did not run
	Stalled uint64 `json:"stalled"`
	// answers of a server or database that the reader's workers do not write to
	Elsewhere uint64 `json:"elsewhere"`
	// entries read that workers had unlinked before: see ErrUnlinkedElsewhere
	OldEntries uint64 `json:"oldEntries"`
	// leases for as long as the map's, which is shorter than Config.Lease
	ShortLeases uint64 `json:"shortLeases"`
	NamesHeard  uint64 `json:"namesHeard"` // keys and patterns of messages, without tag versions
	// of these, names with Config.Prefix: none of thousands means a wrong prefix
	NamesOwn uint64 `json:"namesOwn"`
	// received messages that Memory.Report should have reported and has not
	Unreported uint64 `json:"unreported"`
	// see Config.Shadow
	Shadow        ShadowStatistics `json:"shadow"`
	TotalRequests uint64           `json:"totalRequests"`
	HitRate       float64          `json:"hitRate"` // hits of either kind by requests, 0 without any
	// by entry of the map's section reads; nil if no read of a generated package was fetched
	Reads map[string]ReadStatistics `json:"reads,omitempty"`
	// fingerprints of the maps that the generated packages were made from, sorted: see
	// ReadMap.Version
	ReadsVersions []string `json:"readsVersions,omitempty"`
	// up to 20 forms of keys that Fetch and FetchResult looked for in Redis without a read of a
	// generated package, such as "shop:product:#", once one was fetched
	OtherKeys []string `json:"otherKeys,omitempty"`
}

type counts struct {
	l2Hits, misses, sets, refused, loads, loadErrors, errors, deleted, unsettled, strays, stalled, elsewhere, shortLeases, patternErrors, rejected atomic.Uint64
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
		Loads: n.loads.Load(), LoadErrors: n.loadErrors.Load(), Errors: n.errors.Load(), Invalidations: n.deleted.Load(), Unsettled: n.unsettled.Load(), Strays: n.strays.Load(), Stalled: n.stalled.Load(),
		Elsewhere: n.elsewhere.Load(), ShortLeases: n.shortLeases.Load(),
	}
	if m := c.memory; m != nil {
		s.L1Hits = m.hits.Snapshot().Hits
		s.L1Size = m.values.store.EstimatedSize()
		s.L1Evictions = m.room.full.Load()
		s.L1Overflows, s.PatternErrors = m.overflow.total.Load(), n.patternErrors.Load()
		s.Invalidations += m.evicted.Load()
		s.OldEntries = m.unlinks.total.Load()
		s.NamesOwn = m.names.own.Load()
		s.NamesHeard = s.NamesOwn + m.names.other.Load()
		s.Rejected = n.rejected.Load()
		s.Unreported = c.reports.dropCount()
	}
	s.Shadow = c.shadows.statistics()
	s.Reads, s.ReadsVersions = c.reads.statistics()
	s.OtherKeys = c.reads.others.list()
	s.TotalRequests = s.L1Hits + s.L2Hits + s.Misses
	if s.TotalRequests > 0 {
		s.HitRate = float64(s.L1Hits+s.L2Hits) / float64(s.TotalRequests)
	}
	return s
}
