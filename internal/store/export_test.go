package store

import (
	"database/sql"
	"time"
)

// EveryLookIsSlow makes every look at the table's start one that is worth avoiding, as with a million rows that are not
// purged.
func (s *Store) EveryLookIsSlow() { s.head.near = -time.Hour }

// NoMoreLooks leaves strays alone to find what is below the head.
func (s *Store) NoMoreLooks() { s.head.rest = time.Now().Add(time.Hour) }

// NoMoreLooksBack lets the head pass over what it has passed for good.
func (s *Store) NoMoreLooksBack() { s.head.passed = nil }

// LookAgain ends the rest between two looks.
func (s *Store) LookAgain() { s.head.rest, s.head.looked = time.Time{}, time.Time{} }

// Strays is how many ids below the head are remembered.
func (s *Store) Strays() int { return len(s.head.strays) }

// Pools are the Store's pools by name.
func (s *Store) Pools() map[string]*sql.DB {
	return map[string]*sql.DB{"claims": s.claims, "side": s.side.DB, "lookups": s.lookups, "schema": s.schema}
}
