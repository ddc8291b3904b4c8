package demo

import (
	"fmt"
	"strings"

	"github.com/unstale/unstale/lab/demo/shopcache"
	"github.com/unstale/unstale/outbox"
)

// A change is one transaction of the shop, with its expected effects.
type change struct {
	name  string
	write string              // the shop's own statement; it changes one row
	row   outbox.Invalidation // inserted in the same transaction
	// the row is inserted by plain SQL instead of Enqueue; it has no parameters
	plainSQL bool
	rollback bool // the transaction rolls back
	// short names of the keys and patterns that must be gone or, after a rollback, must stay
	stale []string
}

// scenario covers each line of the map at least once. The change after the rollback must not share
// a key with it, because it proves that the rollback had no effect: see player.
var scenario = []change{
	{
		name:  "product 42 changes price",
		write: "UPDATE products SET price_cents = 4490 WHERE id = 42",
		row:   shopcache.InvalidateProduct(42, shopcache.ProductParams{}),
		stale: []string{"product:42", "category:7:list:*", "category:70:list:*"},
	},
	{
		name:  "variant 4301 changes colour",
		write: "UPDATE variants SET colour = 'tan' WHERE id = 4301",
		row:   shopcache.InvalidateVariant(4301, []int64{43}, shopcache.VariantParams{}),
		stale: []string{"product:43", "category:7:list:*"},
	},
	{
		name:  "product 44 moves, category 7 to 9",
		write: "UPDATE product_categories SET category_id = 9 WHERE product_id = 44 AND category_id = 7",
		row:   shopcache.InvalidateProduct(44, shopcache.ProductParams{CategoryID: []int64{7, 9}}),
		stale: []string{"product:44", "category:7:list:*", "category:9:list:*"},
	},
	{
		name:     "product 45 changes price: ROLLBACK",
		write:    "UPDATE products SET price_cents = 1 WHERE id = 45",
		row:      shopcache.InvalidateProduct(45, shopcache.ProductParams{}),
		rollback: true,
		stale:    []string{"product:45", "category:8:list:*"},
	},
	{
		name:  "category 9 is renamed",
		write: "UPDATE categories SET name = 'Coats and jackets' WHERE id = 9",
		row:   shopcache.InvalidateCategory(9),
		stale: []string{"home", "category:9:list:*"},
	},
	{
		name:  "shipping to riyadh gets cheaper",
		write: "UPDATE shipping_rates SET cents = 700 WHERE city = 'riyadh'",
		row:   shopcache.InvalidateShipping("riyadh"),
		stale: []string{"shipping:city:*"},
	},
	{
		name:  "price rule 4 changes",
		write: "UPDATE price_rules SET percent = 15 WHERE id = 4",
		row:   shopcache.InvalidatePriceRule(4),
		stale: []string{"shipping:city:*"},
	},
	{
		name:     "coupon SUMMER10 changes (plain SQL)",
		write:    "UPDATE coupons SET percent = 12 WHERE code = 'SUMMER10'",
		row:      outbox.Invalidation{Entity: "coupon", ID: "SUMMER10"},
		plainSQL: true,
		stale:    []string{"coupon:SUMMER10"},
	},
	{
		name:  "stock of product 421 is sold",
		write: "UPDATE stock SET pieces = pieces - 1 WHERE id = 9421",
		row:   shopcache.InvalidateInventory(9421, []int64{421}, shopcache.InventoryParams{}),
		stale: []string{"product:421", "category:70:list:*"},
	},
}

// A target is a key or a pattern of a change, with the keys of the shop that it covers.
type target struct {
	name    string // full
	pattern bool
	keys    []string
}

// targets resolves the stale names of a change against all keys of the shop. It compares only
// prefixes, so a bug in the glob matcher cannot hide itself.
func targets(n names, c change, all []string) ([]target, error) {
	var list []target
	for _, short := range c.stale {
		t := target{name: n.full(short)}
		begin, pattern := strings.CutSuffix(t.name, "*")
		t.pattern = pattern
		for _, key := range all {
			if key == t.name || pattern && strings.HasPrefix(key, begin) {
				t.keys = append(t.keys, key)
			}
		}
		if len(t.keys) == 0 {
			return nil, fmt.Errorf("%s: the shop caches nothing called %s", c.name, short)
		}
		list = append(list, t)
	}
	return list, nil
}
