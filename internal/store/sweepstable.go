package store

import (
	"github.com/unstale/unstale/internal/session"
)

// A Table accesses the table of sweep requests. Safe for concurrent use.
type Sweeps struct {
	db      *session.Sessions
	journal *Journal
}

// NewSweeps returns the Table of an outbox.
func NewSweeps(db *session.Sessions) *Sweeps { return &Sweeps{db, NewJournal(db)} }
