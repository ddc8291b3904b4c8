package examples

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/unstale/unstale/cache"
)

// Product reads a product through the cache. Make products once: cache.New(cache.Config{Redis: client, Prefix: "shop:"}).
func Product(ctx context.Context, products *cache.Cache, db *sql.DB, id int64) (name string, err error) {
	return cache.Fetch(ctx, products, fmt.Sprint("product:", id), func(ctx context.Context) (name string, err error) {
		err = db.QueryRowContext(ctx, `SELECT name FROM products WHERE id = ?`, id).Scan(&name)
		if errors.Is(err, sql.ErrNoRows) {
			err = cache.ErrNotFound
		}
		return name, err
	}, cache.Moderate)
}
