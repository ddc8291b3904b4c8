package examples

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/unstale/unstale/examples/shopcache"
	"github.com/unstale/unstale/outbox"
)

// enqueueEnt inserts invalidations in a transaction of ent's SQL driver.
func enqueueEnt(ctx context.Context, tx dialect.Tx, invalidations ...outbox.Invalidation) error {
	in, ok := tx.(outbox.Tx)
	if !ok {
		return fmt.Errorf("enqueue: a %T has no ExecContext; begin it with the driver of entgo.io/ent/dialect/sql", tx)
	}
	return outbox.Enqueue(ctx, in, invalidations...)
}

func setPriceEnt(ctx context.Context, tx dialect.Tx, id int64, cents int) error {
	query, args := entsql.Dialect(dialect.MySQL).Update("products").Set("price_cents", cents).Where(entsql.EQ("id", id)).Query()
	if err := tx.Exec(ctx, query, args, nil); err != nil {
		return err
	}
	return enqueueEnt(ctx, tx, shopcache.InvalidateProduct(id, shopcache.ProductParams{}))
}
