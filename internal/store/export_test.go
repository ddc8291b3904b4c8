package store

import (
	"context"
	"database/sql"
	"time"
)

// EveryScanIsSlow makes every scan from the table's start one that is worth avoiding, as with a million rows that are
// not purged.
func (s *Store) EveryScanIsSlow() { s.planner.quick = -time.Hour }

// EveryScanIsQuick keeps a busy machine from looking like slow scans.
func (s *Store) EveryScanIsQuick() { s.planner.quick = time.Hour }

// NoMoreListsOfAll leaves stragglers and rescans alone to find what is below the head.
func (s *Store) NoMoreListsOfAll() { s.planner.due[listStart] = time.Now().Add(time.Hour) }

// NoMoreRescans lets the head pass what it has passed for good.
func (s *Store) NoMoreRescans() { s.planner.passages = nil }

// ListAllAgain ends the rest between two lists of all that is below the head.
func (s *Store) ListAllAgain() { s.planner.due[listStart] = time.Time{} }

// Stragglers is how many ids below the head are asked for.
func (s *Store) Stragglers() (n uint64) {
	for _, s := range s.planner.stragglers {
		n += s.last - s.first + 1
	}
	return n
}

// Pools are the Store's pools by name.
func (s *Store) Pools() map[string]*sql.DB {
	return map[string]*sql.DB{"claims": s.claims, "side": s.side.DB, "status": s.status.db, "lookups": s.lookups, "schema": s.schema}
}

// SmallBlocks makes blocks of the journal that have so many batches.
func (s *Store) SmallBlocks(batches int) { s.blocks.batches = batches }

// RemoveLocks is what ExpireLocks does with what it has read.
func (s *Store) RemoveLocks(ctx context.Context, first, last string, retention time.Duration) (int64, error) {
	return s.removeLocks(ctx, first, last, retention)
}
