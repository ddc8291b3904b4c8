package maintenance

import (
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// A Batch is a settled batch.
type SpotBatch struct {
	keyspace.Unlinked
	SettledAt time.Time // by the database's clock
}

// A Key is a key that a batch unlinked.
type SpotKey struct {
	Key, Entity, ID, Trace string
	Row                    uint64
	Hold                   time.Duration
	IsTag                  bool // the key has the version of a tag
}

// A batch is a sampled batch.
type batch struct {
	SpotBatch
	generation int
	// numbers of its checks, for minutes.Checks
	known, had, stale int
}

// A check is one key of one batch.
type check struct {
	SpotKey
	batch *batch
	looks int
	found SpotResult // of the last look, "" before the first
}

// reading returns the time of the master before the UNLINK.
func (c *check) reading(addr string) (r keyspace.Reading, ok bool) {
	for _, r := range c.batch.Readings {
		if r.Addr == addr {
			return r, true
		}
	}
	return r, false
}

// heldUntil returns until when the tombstone of this batch exists at least.
func (c *check) heldUntil() time.Time { return c.batch.Began.Add(c.Hold - c.Hold/100) }

// evaluate returns the result of a look, and the times of the entry if it is stale. Each condition
// that is not met for certain makes it unknown.
func (c *check) evaluate(s keyspace.Seen, generation int) (SpotResult, *SpotStale) {
	m := s.Master
	if s.Err != nil || generation != c.batch.generation || m.Moving || m.Survived(c.batch.Position.Epoch) < c.batch.Position.N {
		return Unknown, nil
	}
	r, ok := c.reading(m.Addr)
	switch {
	case !ok || m.Micros < r.Micros:
		return Unknown, nil
	case s.Head == "":
		return Absent, nil
	}
	leased, expiry := EntryTimes(s.Head, c.IsTag)
	held := s.Held && m.Answered.Before(c.heldUntil())
	unlinked := r.Micros + uint64(c.batch.Ended.Sub(r.Sent).Microseconds()) // at most
	switch {
	case held || leased != 0 && leased < r.Micros:
		return Found, &SpotStale{
			Key: c.SpotKey.Key, Entity: c.Entity, ID: c.ID, Trace: c.Trace, Row: c.Row, Position: c.batch.Position,
			SettledAt: c.batch.SettledAt, LeasedAt: at(leased), UnlinkedAt: at(r.Micros), SeenAt: at(m.Micros), ExpiresAt: at(expiry),
			Held: held, After: m.Answered.Sub(c.batch.Ended),
		}
	case leased > unlinked && leased <= m.Micros:
		return Fresh, nil
	}
	return Unknown, nil
}

func at(micros uint64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(micros)).UTC()
}
