package examples

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/examples/shopcache"
	"github.com/unstale/unstale/outbox"
)

func setPriceSqlx(ctx context.Context, tx *sqlx.Tx, product int64, cents int) error {
	_, err := tx.NamedExecContext(ctx, "UPDATE products SET price_cents = :cents WHERE id = :id",
		map[string]any{"cents": cents, "id": product})
	if err != nil {
		return err
	}
	return outbox.Enqueue(ctx, tx, shopcache.InvalidateProduct(product, shopcache.ProductParams{}))
}
