package demo

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/lab/demo/shopcache"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
)

// The products whose prices change while readers load them. They are in no category, so a change
// makes one key stale. The first product is for the arranged race, the others are for the load.
const (
	firstPriced   = 1001
	loadedPrices  = 40
	lastPriced    = firstPriced + loadedPrices
	priceAtFirst  = 4990
	arrangedPrice = 4490
)

// prices are these products in MySQL, and their keys. Safe for concurrent use.
type prices struct {
	db    *sql.DB
	redis redis.UniversalClient
}

// Contract of these statements: rows by primary key; only the transactions of change lock them.
const (
	priceSQL       = "SELECT price_cents FROM products WHERE id = ?"
	allPricesSQL   = "SELECT id, price_cents FROM products WHERE id BETWEEN ? AND ?"
	changePriceSQL = "UPDATE products SET price_cents = ? WHERE id = ?"
	dropPricesSQL  = "DELETE FROM products WHERE id BETWEEN ? AND ?"
)

// reset gives all products their first price, and deletes their keys. No other goroutine may read
// or write meanwhile.
func (p prices) reset(ctx context.Context) error {
	if err := p.drop(ctx); err != nil {
		return err
	}
	var rows []string
	for id := firstPriced; id <= lastPriced; id++ {
		rows = append(rows, fmt.Sprintf("(%d, 'Shirt %d', %d)", id, id, priceAtFirst))
	}
	if _, err := p.db.ExecContext(ctx, "INSERT INTO products VALUES "+strings.Join(rows, ", ")); err != nil {
		return fmt.Errorf("create products: %w", err)
	}
	return nil
}

// drop removes the products and their keys.
func (p prices) drop(ctx context.Context) error {
	if _, err := p.db.ExecContext(ctx, dropPricesSQL, firstPriced, lastPriced); err != nil {
		return fmt.Errorf("remove products: %w", err)
	}
	_, err := p.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for id := firstPriced; id <= lastPriced; id++ {
			key := itemPage(id).Key()
			pipe.Unlink(ctx, key)
			if lease, ok := protocol.LeaseKey(key); ok {
				pipe.Unlink(ctx, lease)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove the products' keys: %w", err)
	}
	return nil
}

// price returns the price in MySQL.
func (p prices) price(ctx context.Context, id int) (cents int, err error) {
	if err := p.db.QueryRowContext(ctx, priceSQL, id).Scan(&cents); err != nil {
		return 0, fmt.Errorf("read price of product %d: %w", id, err)
	}
	return cents, nil
}

// all returns the prices of all products in MySQL.
func (p prices) all(ctx context.Context) (cents map[int]int, err error) {
	cents = map[int]int{}
	err = eachRow(ctx, p.db, allPricesSQL, func(rows *sql.Rows) error {
		var id, price int
		err := rows.Scan(&id, &price)
		cents[id] = price
		return err
	}, firstPriced, lastPriced)
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	return cents, nil
}

// change does the work of a writer: it changes the price and inserts the outbox row in one
// transaction.
func (p prices) change(ctx context.Context, id, cents int) error {
	err := outbox.InTx(ctx, p.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, changePriceSQL, cents, id); err != nil {
			return err
		}
		return outbox.Enqueue(ctx, tx, shopcache.InvalidateProduct(int64(id), shopcache.ProductParams{}))
	})
	if err != nil {
		return fmt.Errorf("change price of product %d: %w", id, err)
	}
	return nil
}
