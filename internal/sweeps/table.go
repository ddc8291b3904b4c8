package sweeps

import (
	"github.com/unstale/unstale/internal/journal"
	"github.com/unstale/unstale/internal/session"
)

// A Table accesses the table of sweep requests. Safe for concurrent use.
type Table struct {
	db      *session.Sessions
	journal *journal.Journal
}

// New returns the Table of an outbox.
func New(db *session.Sessions) *Table { return &Table{db, journal.New(db)} }
