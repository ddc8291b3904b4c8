package examples

import (
	"context"
	"database/sql"

	"github.com/unstale/unstale/examples/shopcache"
	"github.com/unstale/unstale/outbox"
)

func changePrice(ctx context.Context, db *sql.DB, product int64, cents int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after Commit
	if _, err := tx.ExecContext(ctx, "UPDATE products SET price_cents = ? WHERE id = ?", cents, product); err != nil {
		return err
	}
	if err := outbox.Enqueue(ctx, tx, shopcache.InvalidateProduct(product, shopcache.ProductParams{})); err != nil {
		return err
	}
	return tx.Commit()
}

func renameProduct(ctx context.Context, db *sql.DB, product int64, name string) (outbox.Token, error) {
	return outbox.InTxToken(ctx, db, func(tx *sql.Tx, writes *outbox.Writes) error {
		if _, err := tx.ExecContext(ctx, "UPDATE products SET name = ? WHERE id = ?", name, product); err != nil {
			return err
		}
		return writes.Enqueue(ctx, tx, shopcache.InvalidateProduct(product, shopcache.ProductParams{}))
	})
}

func moveProduct(ctx context.Context, db *sql.DB, product, from, to int64) error {
	return outbox.InTx(ctx, db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx,
			"UPDATE product_categories SET category_id = ? WHERE product_id = ? AND category_id = ?", to, product, from)
		if err != nil {
			return err
		}
		// old and new: a lookup would see the new one only
		params := shopcache.ProductParams{CategoryID: []int64{from, to}}
		return outbox.Enqueue(ctx, tx, shopcache.InvalidateProduct(product, params))
	})
}
