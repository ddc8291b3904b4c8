package examples

import (
	"errors"

	"gorm.io/gorm"

	"github.com/unstale/unstale/examples/shopcache"
	"github.com/unstale/unstale/outbox"
)

// A product is a row of the table products.
type product struct {
	ID         int64
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
func setPriceGORM(tx *gorm.DB, id int64, cents int) error {
	if err := tx.Model(&product{ID: id}).Update("price_cents", cents).Error; err != nil {
		return err
	}
	return enqueueGORM(tx, shopcache.InvalidateProduct(id, shopcache.ProductParams{}))
}
