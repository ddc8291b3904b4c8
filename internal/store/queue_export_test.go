package store

import (
	"time"
)

// EveryScanIsSlow makes every scan from the table's start count as slow, as with a million rows
// that are not purged.
func (q *Queue) EveryScanIsSlow() { q.planner.quick = -time.Hour }

// EveryScanIsQuick makes every scan count as quick, even on a busy machine.
func (q *Queue) EveryScanIsQuick() { q.planner.quick = time.Hour }

// NoMoreListsOfAll disables the lists of all IDs below the head, so only stragglers and rescans
// find rows there.
func (q *Queue) NoMoreListsOfAll() { q.planner.due[listStart] = time.Now().Add(time.Hour) }

// NoMoreRescans drops the passages, so IDs that the head has passed are not rescanned.
func (q *Queue) NoMoreRescans() { q.planner.passages = nil }

// ListAllAgain allows the next list of all IDs below the head immediately.
func (q *Queue) ListAllAgain() { q.planner.due[listStart] = time.Time{} }

// Stragglers returns how many IDs below the head claims ask for.
func (q *Queue) Stragglers() (n uint64) {
	for _, s := range q.planner.stragglers {
		n += s.last - s.first + 1
	}
	return n
}
