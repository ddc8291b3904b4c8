package store

import (
	"github.com/unstale/unstale/internal/session"
)

// A Queue claims rows and settles them. It keeps track of where claims begin, so a process needs
// only one. Safe for concurrent use.
type Queue struct {
	db      *session.Sessions
	journal *Journal
	minutes *Minutes
	planner planner
	clock   databaseClock
}

// NewQueue returns the Queue of an outbox, which counts its batches. Its sessions should prepare
// [Prepared].
func NewQueue(db *session.Sessions, counts *Minutes) *Queue {
	return &Queue{db: db, journal: NewJournal(db), minutes: counts, planner: planner{quick: quickScan}}
}
