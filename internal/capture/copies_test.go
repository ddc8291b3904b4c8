package capture_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/migrations"
)

// copyTriggers copies the triggers of a table to another one, as gh-ost --include-triggers does:
// with a suffix to their names, from the text in the dictionary, in the session's sql_mode, without
// a definer.
func (s *shop) copyTriggers(from, to, suffix string) {
	s.t.Helper()
	rows, err := s.DB.QueryContext(s.t.Context(), "SELECT trigger_name, action_timing, event_manipulation, action_statement FROM information_schema.triggers WHERE trigger_schema = DATABASE() AND event_object_table = ?", from)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	var statements []string
	for rows.Next() {
		var name, timing, event, body string
		if err := rows.Scan(&name, &timing, &event, &body); err != nil {
			s.t.Fatal(err)
		}
		statements = append(statements, fmt.Sprintf("CREATE TRIGGER `%s%s` %s %s ON %s FOR EACH ROW %s", name, suffix, timing, event, to, body))
	}
	if err := rows.Err(); err != nil || len(statements) == 0 {
		s.t.Fatalf("%d triggers on %s: %v", len(statements), from, err)
	}
	s.exec(statements...)
}

// named returns the number of triggers that name the outbox.
func (s *shop) named() (n int) {
	s.t.Helper()
	if err := s.DB.QueryRowContext(s.t.Context(), "SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = DATABASE() AND action_statement LIKE '%cache\\_outbox%'").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// Copies of triggers are recognized by their text: they are replaced, dropped, and keep the outbox.
func TestCopiesOfTriggers(t *testing.T) {
	t.Parallel()
	s := newShop(t, products, "CREATE TABLE others (id INT PRIMARY KEY)")
	swap := func() {
		t.Helper()
		s.apply(productCapture)
		s.exec("CREATE TABLE _products_gho LIKE products")
		s.copyTriggers("products", "_products_gho", "_gho")
		s.exec("RENAME TABLE products TO _products_del, _products_gho TO products")
	}
	swap()
	s.want("INSERT INTO products (id, category_id) VALUES (1, 7)", `product 1 {"category_id": ["7"]}`)
	want := []string{"cuts values: AFTER DELETE on products", "cuts values: AFTER INSERT on products", "cuts values: AFTER UPDATE on products",
		"renamed away: AFTER DELETE on _products_del", "renamed away: AFTER INSERT on _products_del", "renamed away: AFTER UPDATE on _products_del"}
	if got := s.states(productCapture); !slices.Equal(got, want) {
		t.Errorf("states %q, wanted %q", got, want)
	}
	s.apply(productCapture)
	want = []string{"in place: AFTER DELETE on products", "in place: AFTER INSERT on products", "in place: AFTER UPDATE on products"}
	if got := s.states(productCapture); !slices.Equal(got, want) || s.named() != 3 {
		t.Errorf("states %q, wanted %q; %d triggers", got, want, s.named())
	}

	// A second set on the same table, which an earlier version left.
	s.copyTriggers("products", "products", "_ght")
	want = append([]string{"duplicate: AFTER DELETE on products", "duplicate: AFTER INSERT on products", "duplicate: AFTER UPDATE on products"}, want...)
	if got := s.states(productCapture); !slices.Equal(got, want) {
		t.Errorf("states %q, wanted %q", got, want)
	}
	s.apply(productCapture)
	if s.named() != 3 {
		t.Errorf("%d triggers", s.named())
	}

	s.exec("DROP TABLE _products_del")
	swap()
	s.exec("DROP TABLE _products_del") // only copies are left
	if _, err := migrations.Down(t.Context(), s.DB, true); !errors.Is(err, migrations.ErrCaptured) || !strings.Contains(err.Error(), "_gho on products") {
		t.Errorf("down: %v", err)
	}
	s.exec("CREATE TRIGGER unstale_own AFTER INSERT ON others FOR EACH ROW INSERT INTO `cache_outbox` (entity, entity_id) VALUES ('product', NEW.id)")
	if err := s.capturer(productCapture).Drop(t.Context(), func(capture.Existing) bool { return true }, func(capture.Existing) {}); err != nil {
		t.Fatal(err)
	}
	if s.named() != 1 {
		t.Errorf("%d triggers are left, wanted the one of the application", s.named())
	}
	if _, err := migrations.Down(t.Context(), s.DB, true); !errors.Is(err, migrations.ErrCaptured) || !strings.Contains(err.Error(), "unstale_own on others") {
		t.Errorf("down beside a trigger of the application: %v", err)
	}
	s.exec("DROP TRIGGER unstale_own")
	if _, err := migrations.Down(t.Context(), s.DB, true); err != nil {
		t.Error(err)
	}
}

// A trigger in another database that names this outbox keeps it as well. A trigger that names the
// outbox of its own database does not.
func TestTriggersInOtherDatabases(t *testing.T) {
	t.Parallel()
	s, other := newShop(t), newShop(t, "CREATE TABLE orders (id INT PRIMARY KEY)")
	down := func() error {
		_, err := migrations.Down(t.Context(), s.DB, true)
		return err
	}
	other.exec("CREATE TRIGGER own AFTER INSERT ON orders FOR EACH ROW INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', NEW.id)")
	if err := down(); err != nil {
		t.Errorf("beside a trigger of another outbox: %v", err)
	}
	if _, err := migrations.Up(t.Context(), s.DB); err != nil {
		t.Fatal(err)
	}
	other.exec("CREATE TRIGGER foreign_one AFTER UPDATE ON orders FOR EACH ROW INSERT INTO `" + s.Name + "` . cache_outbox (entity, entity_id) VALUES ('product', NEW.id)")
	if err := down(); !errors.Is(err, migrations.ErrCaptured) || !strings.Contains(err.Error(), other.Name+".foreign_one on orders") {
		t.Errorf("beside a trigger of this outbox: %v", err)
	}
}
