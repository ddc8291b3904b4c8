package capture_test

import (
	"strings"
	"testing"
)

// A map may ignore a key on one event, and the others stay covered. If it ignores a key of a cycle,
// there is none.
func TestIgnoredCascades(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE brands (id INT PRIMARY KEY)",
		"CREATE TABLE media (id INT PRIMARY KEY, product_id INT)",
		"CREATE TABLE products (id INT PRIMARY KEY, media_id INT, brand_id INT, CONSTRAINT fk_brand FOREIGN KEY (brand_id) REFERENCES brands (id) ON DELETE CASCADE ON UPDATE CASCADE)",
		"ALTER TABLE media ADD CONSTRAINT `fk.product` FOREIGN KEY (product_id) REFERENCES products (id) ON DELETE CASCADE",
		"ALTER TABLE products ADD CONSTRAINT fk_media FOREIGN KEY (media_id) REFERENCES media (id) ON DELETE CASCADE",
		"CREATE TABLE texts (id INT PRIMARY KEY, product_id INT, CONSTRAINT fk_text FOREIGN KEY (product_id) REFERENCES products (id) ON DELETE CASCADE ON UPDATE CASCADE)",
		"INSERT INTO brands VALUES (1), (2)", "INSERT INTO products VALUES (1, NULL, 1), (2, NULL, 2), (3, NULL, NULL)", "INSERT INTO texts VALUES (1, 1), (2, 2), (3, 3)",
	)
	const section = "  texts: {entity: product, id: id, params: {value: product_id}}\n"
	s.apply(strings.Replace(section, "}}", "}, cascades: {media.fk.product: ignore delete}}", 1))
	texts := watched{"texts", "id", "id", "product_id"}
	s.covers(1, "DELETE FROM products WHERE id = 1", texts)
	s.covers(1, "DELETE FROM brands WHERE id = 2", texts)
	s.covers(1, "UPDATE products SET id = 4 WHERE id = 3", texts)
	s.exec("INSERT INTO products VALUES (1, NULL, 1)", "INSERT INTO texts VALUES (1, 1)", "INSERT INTO media VALUES (1, NULL)", "UPDATE products SET media_id = 1 WHERE id = 1", "DELETE FROM cache_outbox")
	s.want("DELETE FROM media WHERE id = 1", `product 1 {"value": ["1"]}`) // texts also is below media by fk_media
	for cascades, statements := range map[string][2]string{                // covered, and not
		"fk_text: ignore delete": {"UPDATE products SET id = 5 WHERE id = 4", "DELETE FROM products WHERE id = 5"},
		"FK_TEXT: ignore update": {"DELETE FROM products WHERE id = 6", "UPDATE products SET id = 8 WHERE id = 7"},
	} {
		s.exec("INSERT IGNORE INTO products VALUES (4, NULL, NULL), (6, NULL, NULL), (7, NULL, NULL)", "INSERT IGNORE INTO texts VALUES (3, 4), (6, 6), (7, 7)")
		s.apply(strings.Replace(section, "}}", "}, cascades: {media.fk.product: ignore, "+cascades+"}}", 1))
		s.covers(1, statements[0], texts)
		s.want(statements[1])
	}
	s.apply(strings.Replace(section, "}}", "}, cascades: {fk_text: ignore}}", 1)) // nothing beyond it matters
	for name, want := range map[string]string{"fk_txt": `did you mean "fk_text"?`, "nothing_like_it": "name a constraint of the table, or of another one as table.constraint", "fk.product": "no foreign key has the name fk.product"} {
		if _, err := s.capturer(strings.Replace(section, "}}", "}, cascades: {"+name+": ignore}}", 1)).Plan(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %s", name, err, want)
		}
	}
}
