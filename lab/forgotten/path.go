package forgotten

// A Path is a write that forgets its row.
type Path struct {
	Name  string
	write []string // statements, in one session
	key   string   // that gets stale
}

// Paths are all paths. Their keys differ, and no other write of the run changes these rows.
var Paths = []Path{
	{"UPDATE of a price", []string{"UPDATE products SET price = 1 WHERE id = 1"}, "shop:product:1"},
	{"UPDATE of the stock", []string{"UPDATE stock SET pieces = 0 WHERE product_id = 2"}, "shop:stock:2"},
	{"move to another category", []string{"UPDATE products SET category_id = 92 WHERE id = 3"}, "shop:category:91"},
	{"soft delete", []string{"UPDATE products SET deleted = 1 WHERE id = 4"}, "shop:product:4"},
	{"restore of a deleted row", []string{"UPDATE products SET deleted = 0 WHERE id = 5"}, "shop:product:5"},
	{"UPDATE of a coupon", []string{"UPDATE coupons SET percent = 90 WHERE code = 'SUMMER'"}, "shop:coupon:SUMMER"},
	{"UPDATE of a shipping rate", []string{"UPDATE rates SET cents = 1 WHERE city = 'jeddah'"}, "shop:rate:jeddah"},
	{"bulk UPDATE of 50 products", []string{"UPDATE products SET price = price * 2 WHERE category_id = 93"}, "shop:product:931"},
	{"INSERT that makes a negative result wrong", []string{"INSERT INTO coupons VALUES ('NEW', 10)"}, "shop:coupon:NEW"},
	{"job in SQL", []string{"CALL expire_coupons()"}, "shop:coupon:EXPIRED"},
	{"another service, whose row has the wrong ID", []string{
		"BEGIN", "UPDATE stock SET pieces = 7 WHERE product_id = 6",
		"INSERT INTO cache_outbox (entity, entity_id) VALUES ('stock', '60')", "COMMIT",
	}, "shop:stock:6"},
	{"cascade of a foreign key", []string{"DELETE FROM users WHERE id = 7"}, "shop:reviews:7"},
}

// shopMap is the map of the shop. It has all keys: only rows are missing.
const shopMap = `version: 1
lease: 2s
entities:
  product: {params: [category_id], keys: ["shop:product:{id}"], tags: ["category-{category_id}"]}
  stock:   {keys: ["shop:stock:{id}"]}
  coupon:  {keys: ["shop:coupon:{id}"]}
  rate:    {keys: ["shop:rate:{id}"]}
  review:  {keys: ["shop:reviews:{id}"]}
`

// schema are the tables of the shop, with the rows of the paths. The products from 1000 on are
// written with their rows.
var schema = []string{
	"CREATE TABLE products (id INT PRIMARY KEY, category_id INT NOT NULL, price INT NOT NULL, deleted BOOL NOT NULL DEFAULT 0, KEY category (category_id))",
	"CREATE TABLE stock (product_id INT PRIMARY KEY, pieces INT NOT NULL)",
	"CREATE TABLE coupons (code VARCHAR(64) PRIMARY KEY, percent INT NOT NULL)",
	"CREATE TABLE rates (city VARCHAR(64) PRIMARY KEY, cents INT NOT NULL)",
	"CREATE TABLE users (id INT PRIMARY KEY)",
	"CREATE TABLE reviews (id INT PRIMARY KEY, product_id INT NOT NULL, user_id INT NOT NULL, KEY product (product_id), FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE)",
	"CREATE PROCEDURE expire_coupons() DELETE FROM coupons WHERE code = 'EXPIRED'",
	"INSERT INTO products (id, category_id, price, deleted) VALUES (1, 90, 10, 0), (3, 91, 10, 0), (4, 90, 10, 0), (5, 90, 10, 1)",
	"INSERT INTO products (id, category_id, price) WITH RECURSIVE n AS (SELECT 901 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 950) SELECT i, 93, 10 FROM n",
	"INSERT INTO products (id, category_id, price) WITH RECURSIVE n AS (SELECT 1000 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1199) SELECT i, i % 10, 10 FROM n",
	"INSERT INTO stock VALUES (2, 5), (6, 5)",
	"INSERT INTO coupons VALUES ('SUMMER', 10), ('EXPIRED', 10)",
	"INSERT INTO rates VALUES ('jeddah', 1500), ('riyadh', 900)",
	"INSERT INTO users VALUES (7)",
	"INSERT INTO reviews VALUES (1, 7, 7)",
}
