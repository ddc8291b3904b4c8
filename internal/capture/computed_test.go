package capture_test

import (
	"strings"
	"testing"
)

// Expressions over columns that a foreign key changes are computed for the old and the new row.
func TestExpressionsOverForeignKeys(t *testing.T) {
	t.Parallel()
	const hex = "LOWER(HEX(c.product_id))"
	for _, c := range []struct {
		name       string
		schema     []string
		of         watched
		statements []string // each changes one row
	}{
		{
			"an ID of two keys, as in Sakila",
			[]string{
				"CREATE TABLE actors (actor_id SMALLINT UNSIGNED PRIMARY KEY)", "CREATE TABLE films (film_id SMALLINT UNSIGNED PRIMARY KEY)",
				`CREATE TABLE film_actors (u INT, actor_id SMALLINT UNSIGNED, film_id SMALLINT UNSIGNED, PRIMARY KEY (actor_id, film_id),
					FOREIGN KEY (actor_id) REFERENCES actors (actor_id) ON UPDATE CASCADE, FOREIGN KEY (film_id) REFERENCES films (film_id) ON DELETE CASCADE ON UPDATE CASCADE)`,
				"INSERT INTO actors VALUES (1), (2)", "INSERT INTO films VALUES (7)", "INSERT INTO film_actors VALUES (1, 1, 7)",
			},
			watched{"film_actors", "u", "CONCAT(c.actor_id, '-', c.film_id)", "film_id"},
			[]string{"UPDATE actors SET actor_id = 3 WHERE actor_id = 1", "UPDATE films SET film_id = 8", "UPDATE actors, films SET actor_id = 4, film_id = 9 WHERE actor_id = 3", "DELETE FROM films"},
		},
		{
			"a child by BINARY(16), as in Shopware",
			[]string{
				"CREATE TABLE products (id BINARY(16), version_id BINARY(16), PRIMARY KEY (id, version_id))",
				`CREATE TABLE texts (u INT PRIMARY KEY, product_id BINARY(16), version_id BINARY(16), name TEXT,
					FOREIGN KEY (product_id, version_id) REFERENCES products (id, version_id) ON DELETE CASCADE ON UPDATE CASCADE)`,
				"INSERT INTO products VALUES (UNHEX(REPEAT('AB', 16)), UNHEX(REPEAT('00', 16)))", "INSERT INTO texts SELECT 1, id, version_id, 'é\"' FROM products",
			},
			watched{"texts", "u", hex, "HEX(c.version_id)"},
			[]string{"UPDATE products SET id = UNHEX(REPEAT('CD', 16))", "UPDATE products SET version_id = UNHEX(REPEAT('01', 16))", "UPDATE products SET id = UNHEX(REPEAT('EF', 16)), version_id = id", "DELETE FROM products"},
		},
		{
			"columns with the names of the trigger's own",
			[]string{
				"CREATE TABLE films (id INT PRIMARY KEY)",
				"CREATE TABLE titles (u INT PRIMARY KEY, unstale_id INT, unstale_param1 INT, FOREIGN KEY (unstale_id) REFERENCES films (id) ON UPDATE CASCADE)",
				"INSERT INTO films VALUES (1)", "INSERT INTO titles VALUES (1, 1, 5)",
			},
			watched{"titles", "u", "CONCAT(c.unstale_id, '-', c.u)", "CONCAT(c.unstale_param1, c.unstale_id)"},
			[]string{"UPDATE films SET id = 2"},
		},
		{
			"NULL that an expression replaces",
			[]string{
				"CREATE TABLE brands (id INT PRIMARY KEY, parent_id INT, FOREIGN KEY (parent_id) REFERENCES brands (id) ON DELETE CASCADE)",
				"CREATE TABLE makers (id INT PRIMARY KEY, brand_id INT, FOREIGN KEY (brand_id) REFERENCES brands (id) ON DELETE CASCADE)",
				"CREATE TABLE codes (code VARCHAR(9) PRIMARY KEY)",
				`CREATE TABLE products (u INT PRIMARY KEY, maker_id INT, code VARCHAR(9), FOREIGN KEY (maker_id) REFERENCES makers (id) ON DELETE SET NULL ON UPDATE CASCADE,
					FOREIGN KEY (code) REFERENCES codes (code) ON DELETE SET NULL ON UPDATE SET NULL)`,
				"INSERT INTO brands VALUES (1, NULL), (2, 1)", "INSERT INTO makers VALUES (1, 2), (2, NULL)", "INSERT INTO codes VALUES ('a'), ('é')",
				"INSERT INTO products VALUES (1, 1, NULL), (2, 2, NULL), (3, NULL, 'a'), (4, NULL, 'é')",
			},
			watched{"products", "u", "CONCAT(COALESCE(c.maker_id, 'none'), '-', c.u)", "COALESCE(c.code, 'no code')"},
			[]string{"DELETE FROM brands WHERE id = 1", "UPDATE makers SET id = 3", "DELETE FROM makers", "UPDATE codes SET code = 'b' WHERE code = 'a'", "DELETE FROM codes WHERE code = 'é'"},
		},
		{
			"two keys to one parent, as in Sakila",
			[]string{
				"CREATE TABLE languages (id INT PRIMARY KEY)",
				`CREATE TABLE films (u INT PRIMARY KEY, language_id INT, original_id INT, FOREIGN KEY (language_id) REFERENCES languages (id) ON UPDATE CASCADE,
					FOREIGN KEY (original_id) REFERENCES languages (id) ON UPDATE CASCADE)`,
				"INSERT INTO languages VALUES (1), (2)", "INSERT INTO films VALUES (1, 1, 1), (2, 2, 2)",
			},
			watched{"films", "u", "language_id", "original_id"},
			[]string{"UPDATE languages SET id = 3 WHERE id = 1", "UPDATE languages SET id = 4 WHERE id = 2"},
		},
		{
			"keys to two columns of one parent",
			[]string{
				"CREATE TABLE languages (id INT PRIMARY KEY, code VARCHAR(9) NOT NULL UNIQUE)",
				`CREATE TABLE films (u INT PRIMARY KEY, language_id INT, code VARCHAR(9), FOREIGN KEY (language_id) REFERENCES languages (id) ON UPDATE CASCADE,
					FOREIGN KEY (code) REFERENCES languages (code) ON UPDATE SET NULL)`,
				"INSERT INTO languages VALUES (1, 'en')", "INSERT INTO films VALUES (1, 1, 'en')",
			},
			watched{"films", "u", "CONCAT(c.language_id, '-', c.code)", "code"},
			[]string{"UPDATE languages SET id = 3"},
		},
		{
			"a name with a backtick",
			[]string{
				"CREATE TABLE languages (id INT PRIMARY KEY)",
				"CREATE TABLE films (u INT PRIMARY KEY, `a``b` INT, language_id INT, FOREIGN KEY (language_id) REFERENCES languages (id) ON UPDATE CASCADE)",
				"INSERT INTO languages VALUES (1)", "INSERT INTO films VALUES (1, 5, 1)",
			},
			watched{"films", "u", "CONCAT(c.language_id, '-', c.`a``b`)", "language_id"},
			[]string{"UPDATE languages SET id = 3"},
		},
		{
			"two keys to one parent, and an expression",
			[]string{
				"CREATE TABLE languages (id INT PRIMARY KEY)",
				`CREATE TABLE films (u INT PRIMARY KEY, language_id INT, original_id INT, FOREIGN KEY (language_id) REFERENCES languages (id) ON DELETE SET NULL ON UPDATE CASCADE,
					FOREIGN KEY (original_id) REFERENCES languages (id) ON DELETE SET NULL ON UPDATE SET NULL)`,
				"INSERT INTO languages VALUES (1), (2)", "INSERT INTO films VALUES (1, 1, 1), (2, 2, 2)",
			},
			watched{"films", "u", "CONCAT(COALESCE(c.language_id, 0), '-', COALESCE(c.original_id, 0))", "original_id"},
			[]string{"UPDATE languages SET id = 3 WHERE id = 1", "DELETE FROM languages WHERE id = 2"},
		},
	} {
		for _, more := range []string{"", ", on_error: skip", ", watch: [u]"} {
			t.Run(c.name+more, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, c.schema...)
				source := func(text string) string {
					if strings.Contains(text, "c.") {
						text = strings.ReplaceAll(text, "c.", "{row}.")
					}
					return `"` + text + `"`
				}
				section := "  " + c.of.table + ": {entity: product, id: " + source(c.of.id) + ", params: {value: " + source(c.of.value) + "}" + more + "}\n"
				s.apply(section)
				for _, statement := range c.statements {
					s.covers(1, statement, c.of)
				}
				s.wantDead()
				if got := s.apply(section); len(got) > 0 {
					t.Errorf("done a second time: %q", got)
				}
			})
		}
	}
}

// A row that the key changes without changing its ID has one row in the outbox.
func TestExpressionThatStays(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE codes (code INT PRIMARY KEY)", "CREATE TABLE prices (id INT PRIMARY KEY, code INT, FOREIGN KEY (code) REFERENCES codes (code) ON UPDATE CASCADE)",
		"INSERT INTO codes VALUES (7), (8)", "INSERT INTO prices VALUES (1, 7), (2, 8)")
	s.apply("  prices: {entity: product, id: \"CONCAT({row}.id, IF({row}.code > 9, NULL, ''))\", params: {value: \"{row}.code % 2\", category_id: id}}\n")
	s.want("UPDATE codes SET code = 9 WHERE code = 7", `product 1 {"value": ["1", "1"], "category_id": ["1"]}`)
	s.want("UPDATE codes SET code = 10 WHERE code = 9", `product 1 {"value": ["1", "0"], "category_id": ["1"]}`)
	s.want("UPDATE codes SET code = 6 WHERE code = 10", `product 1 {"value": ["0", "0"], "category_id": ["1"]}`)
	s.want("UPDATE codes SET code = 5 WHERE code = 5")
}

// Two keys that a delete sets to NULL together, and expressions over both, are refused if one refers
// to its root over another table.
func TestExpressionsOverKeysWithOneRoot(t *testing.T) {
	t.Parallel()
	s := newShop(t,
		"CREATE TABLE brands (id INT PRIMARY KEY)", "CREATE TABLE makers (id INT PRIMARY KEY, brand_id INT, FOREIGN KEY (brand_id) REFERENCES brands (id) ON DELETE CASCADE)",
		`CREATE TABLE products (id INT PRIMARY KEY, brand_id INT, maker_id INT, CONSTRAINT of_brand FOREIGN KEY (brand_id) REFERENCES brands (id) ON DELETE SET NULL,
			CONSTRAINT of_maker FOREIGN KEY (maker_id) REFERENCES makers (id) ON DELETE SET NULL)`)
	const section = "  products: {entity: product, id: id, params: {value: \"CONCAT(COALESCE({row}.brand_id, 0), COALESCE({row}.maker_id, 0))\"}}\n"
	_, err := s.capturer(section).Plan(t.Context())
	if err == nil || !strings.Contains(err.Error(), "expressions use its columns and the columns of of_brand, which sets NULL with it") {
		t.Error(err)
	}
	s.apply(strings.Replace(section, "}}", "}, cascades: {makers.makers_ibfk_1: ignore delete}}", 1))
}

// A subquery in a trigger on a parent sees the parent before its change, so it is refused.
func TestSubqueriesOverForeignKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE products (id INT PRIMARY KEY, slug VARCHAR(20))",
		"CREATE TABLE prices (id INT PRIMARY KEY, product_id INT, CONSTRAINT of_product FOREIGN KEY (product_id) REFERENCES products (id) ON UPDATE CASCADE)")
	const section = "  prices: {entity: product, id: \"(SELECT p.slug FROM products AS p WHERE p.id = {row}.product_id)\"}\n"
	_, err := s.capturer(section).Plan(t.Context())
	if err == nil || !strings.Contains(err.Error(), "an expression with a subquery uses its columns; write rows for that yourself and add 'cascades: {of_product: ignore update}'") {
		t.Error(err)
	}
	s.apply(strings.Replace(section, "}\n", ", cascades: {of_product: ignore update}}\n", 1))
}
