package queue

import (
	"github.com/unstale/unstale/internal/journal"
	"github.com/unstale/unstale/internal/minutes"
	"github.com/unstale/unstale/internal/session"
)

// A Queue claims rows and settles them. It keeps track of where claims begin, so a process needs
// only one. Safe for concurrent use.
type Queue struct {
	db      *session.Sessions
	journal *journal.Journal
	minutes *minutes.Table
	planner planner
	clock   databaseClock
}

// New returns the Queue of an outbox, which counts its batches. Its sessions should prepare
// [Prepared].
func New(db *session.Sessions, counts *minutes.Table) *Queue {
	return &Queue{db: db, journal: journal.New(db), minutes: counts, planner: planner{quick: quickScan}}
}
