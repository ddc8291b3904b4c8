package operate

import "github.com/unstale/unstale/internal/session"

// Orders runs the commands of operators, each with its audit record, and the reads that these need.
// Safe for concurrent use.
type Orders struct {
	db       *session.Sessions
	operator string // who gives the orders, as the program claims; the audit keeps 255 characters
}

// NewOrders returns the Orders of an outbox, in the name of the Operator of db.
func NewOrders(db *session.Sessions) *Orders { return &Orders{db, db.Config.Operator} }

// As returns Orders in the name of an operator.
func (o *Orders) As(operator string) *Orders { return &Orders{o.db, operator} }
