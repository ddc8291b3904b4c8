package operate

import "github.com/unstale/unstale/internal/session"

// Orders runs the commands of operators, each with its audit record, and the reads that these need.
// Safe for concurrent use.
type Orders struct{ db *session.Sessions }

// NewOrders returns the Orders of an outbox.
func NewOrders(db *session.Sessions) *Orders { return &Orders{db} }
