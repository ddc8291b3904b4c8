package capture_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
)

// With any literal, a second apply has nothing to do, although servers show literals differently.
func TestLiterals(t *testing.T) {
	t.Parallel()
	s := newShop(t, products, "CREATE TABLE `a'b` (id INT PRIMARY KEY)")
	for expression, id := range map[string]string{
		`CONCAT('é', {row}.id)`:                                              "é1",
		`CONCAT('😀', {row}.id)`:                                              "😀1",
		`CONCAT('\\', {row}.id)`:                                             `\1`,
		`CONCAT({row}.id, '"', '''')`:                                        `1"'`,
		`REGEXP_REPLACE({row}.id, '\\W', '')`:                                "1",
		`CONCAT({row}.id, '\t')`:                                             "1\t",
		"CONCAT({row}.id, '\n')":                                             "1\n",
		`CONCAT({row}.id, /* x */ '$$ # -- ?')`:                              "1$$ # -- ?",
		`CONCAT(LEFT({row}.id, 1) , CONCAT('%', ''))`:                        "1%",
		`CONCAT({row}.id, _latin1'\xE9', _utf8mb4'é')`:                       "1xE9é",
		`CONCAT({row}.id, _latin1 x'E9', CONVERT(_binary'a' USING utf8mb4))`: "1éa",
		`CONCAT({row}.id, _latin1'é', "b" 'c')`:                              "1Ã©bc",
	} {
		text, err := json.Marshal(expression) // JSON is YAML
		if err != nil {
			t.Fatal(err)
		}
		section := "  products: {entity: product, id: " + string(text) + ", on: [insert], on_error: skip}\n"
		s.apply(section)
		if done := s.apply(section); len(done) > 0 {
			t.Errorf("%s: done a second time: %q", expression, done)
		}
		s.exec("INSERT INTO products (id) VALUES (1)", "DELETE FROM products")
		var got string
		if err := s.DB.QueryRow("SELECT entity_id FROM cache_outbox").Scan(&got); err != nil || got != id {
			t.Errorf("%s: id %q, wanted %q (%v)", expression, got, id, err)
		}
		s.rows()
	}
	const odd = "  a'b: {entity: product, id: id, on_error: skip}\n"
	s.apply(odd)
	if done := s.apply(odd); len(done) > 0 {
		t.Errorf("done a second time: %q", done)
	}
}

// Expressions with unknown names are refused before a trigger is created, since every write would
// fail. So are engines without transactions.
func TestExpressionsAreTried(t *testing.T) {
	t.Parallel()
	s := newShop(t, products, "CREATE TABLE other (p INT)", "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE = MyISAM",
		"CREATE TABLE bytes (id VARBINARY(16), l VARCHAR(9), b BIT(9), at TIMESTAMP(3), j JSON, f DOUBLE)")
	for section, want := range map[string]string{
		`  products: {entity: product, id: "NOSUCH({row}.id)"}`:                                             "the expression NOSUCH({row}.id): Error 1305",
		`  products: {entity: product, id: "{row}.nope"}`:                                                   "Error 1054",
		`  products: {entity: product, id: id, params: {value: "(SELECT {row}.nope FROM other)"}}`:          "Error 1054",
		`  products: {entity: product, id: id, params: {value: "CONCAT({row}.id"}}`:                         "Error 1064",
		`  bytes: {entity: product, id: "CONCAT('x', {row}.id)"}`:                                           "the expression CONCAT('x', {row}.id) gives bytes",
		`  bytes: {entity: product, id: "HEX({row}.id)", params: {value: "CONVERT({row}.l USING binary)"}}`: "gives bytes",
		`  bytes: {entity: product, id: "{row}.b"}`:                                                         "gives bytes",
		`  products: {entity: product, id: "{row}.id /*!50000 + 1 */"}`:                                     "has a comment that some servers execute",
		`  plain: {entity: product, id: id}`:                                                                "plain is of the engine MyISAM, which has no transactions",
	} {
		if _, err := s.capturer(section + "\n").Plan(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %s", section, err, want)
		}
	}
	for _, expression := range []string{"CONVERT({row}.id USING utf8mb4)", "CONCAT({row}.f, UNIX_TIMESTAMP({row}.at), {row}.l)", "{row}.f", "{row}.at", "{row}.b + 0", "JSON_EXTRACT({row}.j, '$.a')", "SHA2({row}.id, 256)",
		"CASE WHEN {row}.f > 1 THEN {row}.l END", "IF({row}.f, NULL, 'a')", "DATE({row}.at)", "COALESCE({row}.f, '-')", "(SELECT MAX(p) FROM other WHERE p = {row}.f)"} {
		if _, err := s.capturer("  bytes: {entity: product, id: \"" + expression + "\"}\n").Plan(t.Context()); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

// Other triggers stay, with any name.
func TestTriggersOfOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	const body = " AFTER UPDATE ON products FOR EACH ROW SET @x = 1"
	s.exec("CREATE TRIGGER unstale_audit"+body, "CREATE TRIGGER Unstale_update_0123456789abcdef"+body)
	s.apply(productCapture)
	s.apply("  products: {entity: product, id: id, on: [insert]}\n")
	if err := s.capturer(productCapture).Drop(t.Context(), func(capture.Existing) bool { return true }, func(capture.Existing) {}); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := s.DB.QueryRow("SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = DATABASE()").Scan(&left); err != nil || left != 2 {
		t.Errorf("%d triggers are left (%v)", left, err)
	}
}

// Other values of the variable disable nothing, and fail no write.
func TestSwitchHoldsSomethingElse(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	s.apply(productCapture)
	conn := s.conn()
	for id, value := range []string{"0", "1", "FALSE", "0.0", "'OFF'", "''", "NULL", "'off'"} {
		for _, statement := range []string{"SET @unstale_capture = " + value, fmt.Sprintf("INSERT INTO products (id) VALUES (%d)", id)} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Errorf("%s: %v", value, err)
			}
		}
		if rows := s.rows(); (len(rows) == 1) == (value == "'off'") {
			t.Errorf("%s: rows %q", value, rows)
		}
	}
}
