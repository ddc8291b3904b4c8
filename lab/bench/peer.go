package bench

import (
	"context"
	"sync/atomic"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/worker"
)

// A Peer is another way to process rows, on its own table.
type Peer struct {
	Name  string
	Table string // which it empties, in the database of the Ground
	// Fill puts a row for each of the ids 0 to n-1 into the table, which is empty, or not there the
	// first time.
	Fill func(ctx context.Context, g *Ground, n int) error
	// Drain consumes until ctx ends. It calls Invalidate for each row, or for as many together as
	// the peer delivers. Returning earlier is a failure.
	Drain func(ctx context.Context, g *Ground) error
}

// A Ground is the state that all peers share.
type Ground struct {
	DSN string // of the database, for go-sql-driver: interpolated parameters, parseTime, UTC

	shop *shop
	seq  atomic.Uint64
}

// ID returns the id of row i, which is all that a handler needs to make the key.
func (g *Ground) ID(i int) string {
	_, id, _ := coupon(i)
	return id
}

// Invalidate unlinks the keys of some ids with their leases and publishes them, in one round trip:
// the same commands as the floor's. Safe for concurrent use.
func (g *Ground) Invalidate(ctx context.Context, ids ...string) error {
	entries := make([]store.JournalEntry, len(ids))
	for i, id := range ids {
		entries[i].Keys = []string{couponKey(id)}
	}
	return (floorShop{g.shop}).apply(ctx, entries, g.seq.Add(1))
}

// ours returns a worker as a Peer. A batch of 0 rows means the default.
func (s *shop) ours(name string, batch int) Peer {
	return Peer{
		Name: name, Table: "cache_outbox",
		Fill: func(ctx context.Context, _ *Ground, n int) error { return s.enqueue(ctx, n, coupon) },
		Drain: func(ctx context.Context, _ *Ground) error {
			w, err := s.newWorker("worker", couponMap, worker.Config{BatchRows: batch})
			if err != nil {
				return err
			}
			if _, err = w.DrainRows(ctx); err == nil {
				<-ctx.Done()
			}
			return err
		},
	}
}
