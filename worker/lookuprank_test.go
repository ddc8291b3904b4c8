package worker_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const shopMap = `
version: 1
publish: {channel: "cache:invalidate"}
vars: {locales: [en, de]}
each: {page: 1..2}
params:
  product_id: {lookup: {by: [id], sql: "SELECT id, product_id FROM questions WHERE id IN (?)"}}
  category_id: {lookup: {by: [id], always: true, sql: "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"}}
  listed_in:
    lookup:
      by: [category_id]
      sql: |
        WITH RECURSIVE above (id, listed_in) AS (
          SELECT id, id FROM categories WHERE id IN (?)
          UNION ALL SELECT above.id, c.parent_id FROM above JOIN categories AS c ON c.id = above.listed_in AND c.parent_id IS NOT NULL)
        SELECT id, listed_in FROM above
  country: {with: [currency], lookup: {by: [id], sql: "SELECT shop_id, country, currency FROM shop_countries WHERE shop_id IN (?)"}}
entities:
  review:
    params: [product_id]
    lookups: {product_id: {by: [id], sql: "SELECT id, product_id FROM reviews WHERE id IN (?)"}}
    as: {product: "{product_id}"}
  question: {params: [product_id], as: {product: "{product_id}"}}
  product: {params: [category_id, listed_in], keys: ["shop:{locales}:{id}", "shop:list:{listed_in}:{page}"]}
  price: {params: [country, currency], keys: ["shop:price:{id}:{country}:{currency}"]}
`

func newShop(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, shopMap)
	for _, statement := range []string{
		"CREATE TABLE reviews (id INT PRIMARY KEY, product_id INT NOT NULL)", "CREATE TABLE questions LIKE reviews",
		"CREATE TABLE product_categories (product_id INT NOT NULL, category_id INT NOT NULL)",
		"CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT NULL)",
		"CREATE TABLE shop_countries (shop_id INT NOT NULL, country CHAR(2) NULL, currency CHAR(3) NULL)",
		"INSERT INTO reviews VALUES (1, 10), (2, 99)", "INSERT INTO questions VALUES (1, 99), (2, 20)",
		"INSERT INTO product_categories VALUES (10, 7), (20, 8), (30, 9), (99, 1)",
		"INSERT INTO categories VALUES (1, NULL), (2, 1), (3, 1), (7, 2), (8, 2), (9, 3), (5, 4), (4, NULL), (6, NULL)",
		"INSERT INTO shop_countries VALUES (7, 'DE', 'EUR'), (7, 'US', 'USD'), (7, NULL, NULL), (8, 'DE', 'EUR'), (8, 'US', NULL), (9, 'AT', 'EUR')",
	} {
		w.exec(statement)
	}
	return w
}

// Dependent lookups run one after another, each once for all rows of a batch, at any depth.
func TestLookupsFollowEachOther(t *testing.T) {
	t.Parallel()
	w := newShop(t)
	for _, id := range []string{"10", "20", "30", "99"} {
		w.set("shop:en:"+id, "shop:de:"+id)
	}
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		w.set("shop:list:"+id+":1", "shop:list:"+id+":2", "shop:list:"+id+":3")
	}
	w.set("shop:price:7:DE:EUR", "shop:price:7:US:USD", "shop:price:7:DE:USD", "shop:price:7:US:EUR")
	w.enqueue(
		outbox.Invalidation{Entity: "review", ID: "1"},
		outbox.Invalidation{Entity: "question", ID: "2"},
		outbox.Invalidation{Entity: "product", ID: "30", Params: map[string]any{"category_id": 5}},
		outbox.Invalidation{Entity: "product", ID: "10"},
		outbox.Invalidation{Entity: "price", ID: "7"},
	)
	r := w.worker(worker.Config{})
	r.drain(t)
	want := "shop:de:99 shop:en:99 shop:list:1:3 shop:list:2:3 shop:list:3:3 shop:list:4:3 shop:list:5:3 " +
		"shop:list:6:1 shop:list:6:2 shop:list:6:3 shop:list:7:3 shop:list:8:3 shop:list:9:3 shop:price:7:DE:USD shop:price:7:US:EUR"
	if got := strings.Join(w.left(), " "); got != want {
		t.Errorf("left\n%s, wanted\n%s", got, want)
	}
	if n := w.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	if asked := series(t, r, "unstale_mysql_call_seconds_count")[`kind="lookup"`]; asked != "5" {
		t.Errorf("%s queries for five lookups", asked)
	}
}

// Of values that go together a lookup finds all or none: a row with a NULL among them is at fault,
// alone.
func TestLookupFindsOnlySome(t *testing.T) {
	t.Parallel()
	w := newShop(t)
	w.set("shop:price:7:DE:EUR", "shop:price:8:DE:EUR", "shop:price:9:AT:EUR")
	w.enqueue(
		outbox.Invalidation{Entity: "price", ID: "7"}, outbox.Invalidation{Entity: "price", ID: "8"}, outbox.Invalidation{Entity: "price", ID: "9"},
		outbox.Invalidation{Entity: "price", ID: "10", Params: map[string]any{"country": []string{"DE", "AT"}, "currency": []string{"EUR", "EUR", "EUR"}}},
		outbox.Invalidation{Entity: "price", ID: "11", Params: map[string]any{"country": "DE"}},
	)
	w.worker(worker.Config{}).drain(t)
	if got := strings.Join(w.left(), " "); got != "shop:price:8:DE:EUR" {
		t.Errorf("left %s", got)
	}
	checkDead(t, w, map[string][2]string{
		"8":  {"lookup_failed", `for ["8"] currency is NULL, and what goes along with it is not: select COALESCE(currency, '') for it`},
		"10": {"bad_parameter", `"currency": it has 3 values, and country, with which they go together, has 2`},
		"11": {"missing_parameter", `"currency": the row does not give it, but what goes along with it: country`},
	})
}
