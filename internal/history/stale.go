package history

import (
	"context"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
)

// A Stale is a stale entry of the key, as a spot check found it.
type Stale struct {
	FoundAt    time.Time  `json:"found_at"`
	Worker     string     `json:"worker"`
	Row        uint64     `json:"row"`
	LeasedAt   *time.Time `json:"leased_at"` // by the clock of Redis; null: not known
	UnlinkedAt time.Time  `json:"unlinked_at"`
	Held       bool       `json:"held"` // it was stored while the key had a tombstone
	Repaired   bool       `json:"repaired"`
}

// addStale adds the stale entries of the key, the newest last.
func (p *Past) addStale(ctx context.Context, db *session.Sessions, q Query) {
	list, err := store.NewStaleEntries(db).Of(ctx, q.Key, q.Limit)
	if err != nil {
		p.Miss("whether spot checks found stale entries of the key is unknown", err)
		return
	}
	for _, e := range slices.Backward(list) {
		if q.Since > 0 && time.Since(e.FoundAt) > q.Since {
			continue
		}
		s := Stale{
			FoundAt: e.FoundAt, Worker: e.Worker, Row: e.Row, UnlinkedAt: time.UnixMicro(int64(e.Unlinked)).UTC(), Held: e.Held, Repaired: e.Repaired,
		}
		if e.Leased != 0 {
			leased := time.UnixMicro(int64(e.Leased)).UTC()
			s.LeasedAt = &leased
		}
		p.Stale = append(p.Stale, s)
	}
}
