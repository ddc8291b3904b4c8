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

// StoreProduct stores a product that was just written, so that no reader has to load it. It returns
// cache.ErrTaken if a reader loads it already, and cache.ErrLeaseLost if another write came.
func StoreProduct(ctx context.Context, products *cache.Cache, db *sql.DB, id int64, token outbox.Token) error {
	if err := outbox.Wait(ctx, db, token); err != nil { // the worker deletes what is stored before
		return err
	}
	page := shopcache.ProductPage(id)
	if err := page.Err(); err != nil {
		return err
	}
	lease, err := products.Lease(ctx, page.Key(), page.Policy())
	if err != nil {
		return err
	}
	var name string // after the lease: two writers may be here
	if err := db.QueryRowContext(ctx, `SELECT name FROM products WHERE id = ?`, id).Scan(&name); err != nil {
		lease.Release(ctx)
		return err
	}
	return cache.Set(ctx, lease, name)
}
