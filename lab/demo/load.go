package demo

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/lab/demo/shopcache"
)

// The queries of the readers. Contract: no lock (consistent reads); the shop has a handful of rows.
const (
	productsSQL = `SELECT p.id, JSON_OBJECT('id', p.id, 'name', p.name, 'price_cents', p.price_cents,
		'colours', (SELECT GROUP_CONCAT(v.colour ORDER BY v.id) FROM variants v WHERE v.product_id = p.id),
		'pieces', (SELECT SUM(s.pieces) FROM stock s WHERE s.product_id = p.id)) FROM products p ORDER BY p.id`
	listedSQL = `SELECT c.id, c.name, p.id, p.name, p.price_cents FROM categories c
		JOIN product_categories pc ON pc.category_id = c.id JOIN products p ON p.id = pc.product_id ORDER BY c.id, p.id DESC`
	categoriesSQL = `SELECT name FROM categories ORDER BY id`
	citiesSQL     = `SELECT r.city, JSON_OBJECT('city', r.city, 'cents', r.cents,
		'rules', (SELECT GROUP_CONCAT(CONCAT(p.name, ': ', p.percent, ' %') ORDER BY p.id SEPARATOR '; ') FROM price_rules p))
		FROM shipping_rates r ORDER BY r.city`
	couponsSQL = `SELECT code, JSON_OBJECT('code', code, 'percent', percent) FROM coupons ORDER BY code`
)

// load reads everything that the shop caches: item pages, list pages, the home page, shipping rates
// of cities, coupons.
func (s shop) load(ctx context.Context) (items []item, err error) {
	for _, load := range []func(context.Context) ([]item, error){s.products, s.lists, s.home, s.cities, s.coupons} {
		more, err := load(ctx)
		if err != nil {
			return nil, fmt.Errorf("load from the shop: %w", err)
		}
		items = append(items, more...)
	}
	return items, nil
}

func (s shop) products(ctx context.Context) ([]item, error) {
	return itemsOf(ctx, s.db, productsSQL, itemPage)
}

func (s shop) cities(ctx context.Context) ([]item, error) {
	return itemsOf(ctx, s.db, citiesSQL, shopcache.ShippingCity)
}

func (s shop) coupons(ctx context.Context) ([]item, error) {
	return itemsOf(ctx, s.db, couponsSQL, shopcache.Coupon)
}

// itemsOf reads rows of an ID and the value to cache.
func itemsOf[ID any](ctx context.Context, db *sql.DB, query string, read func(ID) cache.Read) (items []item, err error) {
	err = eachRow(ctx, db, query, func(rows *sql.Rows) error {
		var id ID
		var i item
		if err := rows.Scan(&id, &i.value); err != nil {
			return err
		}
		i.read = read(id)
		items = append(items, i)
		return nil
	})
	return items, err
}

func (s shop) home(ctx context.Context) ([]item, error) {
	var categories []string
	err := eachRow(ctx, s.db, categoriesSQL, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		categories = append(categories, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(categories)
	return []item{{shopcache.Home(), string(value)}}, err
}

// A category's lists have this many pages in each order. The last pages can be empty.
const (
	listPages = 3
	pageSize  = 2
)

// A listed product is an entry of a list page.
type listed struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	Cents int    `json:"price_cents"`
}

// A listing is the products of one category, newest first.
type listing struct {
	category int64
	name     string
	products []listed
}

func (s shop) lists(ctx context.Context) (items []item, err error) {
	var all []listing
	err = eachRow(ctx, s.db, listedSQL, func(rows *sql.Rows) error {
		var l listing
		var p listed
		if err := rows.Scan(&l.category, &l.name, &p.ID, &p.Name, &p.Cents); err != nil {
			return err
		}
		if len(all) == 0 || all[len(all)-1].category != l.category {
			all = append(all, l)
		}
		last := &all[len(all)-1]
		last.products = append(last.products, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		pages, err := l.pages()
		if err != nil {
			return nil, err
		}
		items = append(items, pages...)
	}
	return items, nil
}

func (l listing) pages() (items []item, err error) {
	cheapest := slices.Clone(l.products)
	slices.SortStableFunc(cheapest, func(a, b listed) int { return cmp.Compare(a.Cents, b.Cents) })
	for _, order := range []struct {
		sort     string
		products []listed
	}{{"new", l.products}, {"price", cheapest}} {
		for page := 1; page <= listPages; page++ {
			from := min((page-1)*pageSize, len(order.products))
			to := min(from+pageSize, len(order.products))
			value, err := json.Marshal(map[string]any{"category": l.name, "products": order.products[from:to]})
			if err != nil {
				return nil, err
			}
			items = append(items, item{shopcache.CategoryList(l.category, int64(page), order.sort), string(value)})
		}
	}
	return items, nil
}

func eachRow(ctx context.Context, db *sql.DB, query string, scan func(*sql.Rows) error, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports what went wrong
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
