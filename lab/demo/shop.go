package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/unstale/unstale/outbox"
)

// A shop is the application: its tables, and transactions that change them. Safe for concurrent
// use.
type shop struct {
	db *sql.DB
}

// schemaSQL are the shop's tables. The lookup of mapping.yaml reads product_categories.
var schemaSQL = []string{
	`CREATE TABLE categories (id INT PRIMARY KEY, name VARCHAR(64) NOT NULL)`,
	`CREATE TABLE products (id INT PRIMARY KEY, name VARCHAR(64) NOT NULL, price_cents INT NOT NULL)`,
	`CREATE TABLE product_categories (product_id INT NOT NULL, category_id INT NOT NULL, PRIMARY KEY (product_id, category_id))`,
	`CREATE TABLE variants (id INT PRIMARY KEY, product_id INT NOT NULL, colour VARCHAR(32) NOT NULL, KEY product (product_id))`,
	`CREATE TABLE stock (id INT PRIMARY KEY, product_id INT NOT NULL, pieces INT NOT NULL, KEY product (product_id))`,
	`CREATE TABLE shipping_rates (city VARCHAR(64) PRIMARY KEY, cents INT NOT NULL)`,
	`CREATE TABLE price_rules (id INT PRIMARY KEY, name VARCHAR(64) NOT NULL, percent INT NOT NULL)`,
	`CREATE TABLE coupons (code VARCHAR(64) COLLATE utf8mb4_bin PRIMARY KEY, percent INT NOT NULL)`,
}

// seedSQL fills the tables. Some IDs and codes are prefixes of others: the keys of 42, 7 or
// SUMMER10 must be deleted without the keys of 421, 70 or SUMMER100.
var seedSQL = []string{
	`INSERT INTO categories VALUES (7, 'Shoes'), (8, 'Bags'), (9, 'Coats'), (70, 'Gifts')`,
	`INSERT INTO products VALUES (42, 'Sandal', 4990), (43, 'Boot', 12900), (44, 'Slipper', 1990), (45, 'Satchel', 7900),
		(46, 'Tote', 3900), (47, 'Raincoat', 15900), (48, 'Parka', 18900), (421, 'Gift card', 5000), (422, 'Ribbon', 290)`,
	`INSERT INTO product_categories VALUES (42, 7), (42, 70), (43, 7), (44, 7), (45, 8), (46, 8), (47, 9), (48, 9), (421, 70), (422, 70)`,
	`INSERT INTO variants VALUES (4201, 42, 'white'), (4301, 43, 'brown'), (4302, 43, 'black'), (4501, 45, 'red'), (4701, 47, 'yellow')`,
	`INSERT INTO stock VALUES (9042, 42, 30), (9043, 43, 12), (9045, 45, 8), (9421, 421, 500)`,
	`INSERT INTO shipping_rates VALUES ('dammam', 1200), ('jeddah', 1500), ('riyadh', 900)`,
	`INSERT INTO price_rules VALUES (3, 'Free from 200.00', 100), (4, 'Members', 10)`,
	`INSERT INTO coupons VALUES ('SUMMER10', 10), ('SUMMER100', 100), ('WELCOME', 5)`,
}

func (s shop) create(ctx context.Context) error {
	for _, stmt := range append(append([]string{}, schemaSQL...), seedSQL...) {
		if _, err := s.db.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("create shop: %w", err)
		}
	}
	return nil
}

// plainInsertSQL announces a change, as an application in any language does. Contract: appends one
// row, and takes no lock that another insert waits for.
const plainInsertSQL = "INSERT INTO cache_outbox (entity, entity_id) VALUES (?, ?)"

// errRollback makes a transaction of the shop roll back.
var errRollback = errors.New("the shop changed its mind")

// transact runs a change: the shop's own write and the invalidation, in one transaction. It returns
// when COMMIT, or ROLLBACK, has been answered.
func (s shop) transact(ctx context.Context, c change) error {
	err := outbox.InTx(ctx, s.db, func(tx *sql.Tx) error {
		if err := write(ctx, tx, c); err != nil {
			return err
		}
		if c.rollback {
			return errRollback
		}
		return nil
	})
	if c.rollback && errors.Is(err, errRollback) {
		return nil
	}
	return err
}

func write(ctx context.Context, tx *sql.Tx, c change) error {
	result, err := tx.ExecContext(ctx, c.write)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(fmt.Errorf("%s: %d rows of the shop changed, wanted 1", c.name, n), err)
	}
	if c.plainSQL {
		if _, err := tx.ExecContext(ctx, plainInsertSQL, c.row.Entity, c.row.ID); err != nil {
			return fmt.Errorf("%s: insert row: %w", c.name, err)
		}
		return nil
	}
	return outbox.Enqueue(ctx, tx, c.row)
}
