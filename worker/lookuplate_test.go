package worker_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// A lookup by a value of the row runs even if the ID of its entity has to be looked up first. A row
// whose values do not go together affects no other row.
func TestLookupOfAnEntityThatIsReachedLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `
version: 1
publish: {channel: "cache:invalidate"}
params:
  product_id: {lookup: {by: [id], sql: "SELECT id, product_id FROM reviews WHERE id IN (?)"}}
  listed_in: {lookup: {by: [category_id], sql: "SELECT id, parent_id FROM categories WHERE id IN (?)"}}
  zone: {optional: true, with: [area]}
entities:
  review: {params: [product_id], as: {product: "{product_id}"}}
  product: {params: [category_id, listed_in], keys: ["shop:list:{listed_in}"]}
  stock: {params: [zone, area], keys: ["shop:stock:{area}:{zone}"]}
`)
	for _, statement := range []string{
		"CREATE TABLE reviews (id INT PRIMARY KEY, product_id INT NOT NULL)", "CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT NULL)",
		"INSERT INTO reviews VALUES (1, 10)", "INSERT INTO categories VALUES (7, 3)",
	} {
		w.exec(statement)
	}
	w.set("shop:list:3", "shop:list:4")
	w.enqueue(
		outbox.Invalidation{Entity: "review", ID: "1", Params: map[string]any{"category_id": 7}},
		outbox.Invalidation{Entity: "stock", ID: "2", Params: map[string]any{"zone": []string{"a", "b"}, "area": []string{"1", "2", "3"}}},
	)
	w.worker(worker.Config{}).drain(t)
	if got := strings.Join(w.left(), " "); got != "shop:list:4" {
		t.Errorf("left %s", got)
	}
	checkDead(t, w, map[string][2]string{"2": {"bad_parameter", `"area": it has 3 values, and zone, with which they go together, has 2`}})
}
