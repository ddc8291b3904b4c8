package examples

import (
	"context"
	"database/sql"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/examples/shopcache"
	"github.com/unstale/unstale/outbox"
)

// Product reads a product through the cache. Make products once:
// cache.New(cache.Config{Redis: client, NotFound: sql.ErrNoRows}).
func Product(ctx context.Context, products *cache.Cache, db *sql.DB, id int64) (name string, err error) {
	return cache.FetchRead(ctx, products, shopcache.ProductPage(id), func(ctx context.Context) (name string, err error) {
		err = db.QueryRowContext(ctx, `SELECT name FROM products WHERE id = ?`, id).Scan(&name)
		return name, err // sql.ErrNoRows: see Config.NotFound
	})
}

// ProductAfter is Product for the caller whose cookie holds the token of its last write, or
// nothing.
func ProductAfter(ctx context.Context, products *cache.Cache, db *sql.DB, id int64, cookie string) (name string, err error) {
	token, err := outbox.ParseToken(cookie)
	if err != nil {
		token = outbox.Token{} // a browser may send anything
	}
	page := shopcache.ProductPage(id).After(outbox.NewCheck(db, token))
	return cache.FetchRead(ctx, products, page, func(ctx context.Context) (name string, err error) {
		conn, err := cache.OnPrimary(ctx, db)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		err = conn.QueryRowContext(ctx, `SELECT name FROM products WHERE id = ?`, id).Scan(&name)
		return name, err
	})
}

// NewProducts keeps up to 10,000 values in memory, as long as the workers of the outbox in db are
// heard.
func NewProducts(ctx context.Context, client redis.UniversalClient, db *sql.DB) (*cache.Cache, error) {
	source, err := outbox.Source(ctx, db)
	if err != nil {
		return nil, err
	}
	return cache.New(cache.Config{Redis: client, NotFound: sql.ErrNoRows, Memory: cache.Memory{Size: 10_000, Sources: []string{source}}})
}
