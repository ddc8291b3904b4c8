package store

import (
	"context"
	"errors"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
)

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

// ErrRepeated reports that an order was given before.
var ErrRepeated = errors.New("this order was given before")

// Contract: one row by primary key, or the rows of orders that are older than an hour, which are
// few, and the last by name: the range ends at no other row that another transaction may have locked.
// Only one of two inserts of a name succeeds; the other waits for it.
const (
	onceSQL   = "INSERT INTO cache_outbox_control (name, who, reason, ends_at) VALUES (CONCAT('run:', ?), ?, '', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)"
	forgetSQL = "DELETE FROM cache_outbox_control WHERE name LIKE 'run:%' AND ends_at < UTC_TIMESTAMP(6)"
)

// Once returns ErrRepeated if it was called with this ID of an order in the last hour, by any
// process. An ID has at most 12 characters; who gives the order.
func Once(ctx context.Context, db *session.Sessions, who, id string) error {
	err := db.Exec(ctx, forgetSQL)
	if err == nil {
		err = db.Exec(ctx, onceSQL, id, claimed(who))
	}
	if mysqlerr.Number(err) == mysqlerr.Duplicate {
		return ErrRepeated
	}
	return err
}
