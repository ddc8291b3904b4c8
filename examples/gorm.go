package examples

import (
	"errors"
	"strconv"

	"gorm.io/gorm"

	"github.com/unstale/unstale/outbox"
)

// A product is a row of the table products.
type product struct {
	ID         int
	PriceCents int
}

// enqueueGORM inserts invalidations in the transaction that tx is in.
func enqueueGORM(tx *gorm.DB, invalidations ...outbox.Invalidation) error {
	in, ok := tx.Statement.ConnPool.(outbox.Tx)
	if !ok {
		return errors.New("enqueue: this *gorm.DB is not in a transaction; call it within db.Transaction")
	}
	return outbox.Enqueue(tx.Statement.Context, in, invalidations...)
}

// setPriceGORM is called within db.Transaction.
func setPriceGORM(tx *gorm.DB, id, cents int) error {
	if err := tx.Model(&product{ID: id}).Update("price_cents", cents).Error; err != nil {
		return err
	}
	return enqueueGORM(tx, outbox.Invalidation{Entity: "product", ID: strconv.Itoa(id)})
}
