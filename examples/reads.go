package examples

import (
	"context"
	"database/sql"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/examples/shopcache"
	"github.com/unstale/unstale/outbox"
)

// ProductName returns the name of a product.
func ProductName(ctx context.Context, c *cache.Cache, db *sql.DB, id int64) (string, error) {
	return cache.FetchRead(ctx, c, shopcache.ProductPage(id), func(ctx context.Context) (name string, err error) {
		return name, db.QueryRowContext(ctx, "SELECT name FROM products WHERE id = ?", id).Scan(&name)
	})
}

// Rename changes the name of a product, which category lists show too.
func Rename(ctx context.Context, db *sql.DB, id int64, name string, categories []int64) error {
	return outbox.InTx(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE products SET name = ? WHERE id = ?", name, id); err != nil {
			return err
		}
		return outbox.Enqueue(ctx, tx, shopcache.InvalidateProduct(id, shopcache.ProductParams{CategoryID: categories}))
	})
}
