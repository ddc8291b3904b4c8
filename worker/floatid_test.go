package worker_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/worker"
)

// MySQL keeps the parameter types of the first execution of a prepared statement. After a number
// that the driver sent as DOUBLE, an ID that is text becomes a float. The worker refuses that for an
// entity whose IDs are integers. With CAST, the text stays.
func TestIDsThatADriverSentAsDouble(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `version: 1
types: {product_id: int}
entities:
  product: {params: [category_id], keys: ["p:{id}"], patterns: ["category:{category_id}:*"]}
  coupon: {keys: ["c:{id}"]}
`)
	insert := func(column string, ids ...any) {
		t.Helper()
		stmt, err := w.db.PrepareContext(t.Context(), "INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', "+column+", '{\"category_id\": 1}')")
		if err != nil {
			t.Fatal(err)
		}
		defer stmt.Close()
		for _, id := range ids {
			if _, err := stmt.ExecContext(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	stored := func() (ids []string) {
		t.Helper()
		rows, err := w.db.QueryContext(t.Context(), "SELECT entity_id FROM cache_outbox ORDER BY id")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		w.exec("DELETE FROM cache_outbox")
		return ids
	}
	insert("CAST(? AS CHAR)", 42.0, "007", "1e5", "9007199254740993")
	if got := stored(); !slices.Equal(got, []string{"42", "007", "1e5", "9007199254740993"}) {
		t.Errorf("with CAST: %q", got)
	}
	insert("?", "007", "1e5", "9007199254740993")
	if got := stored(); !slices.Equal(got, []string{"007", "1e5", "9007199254740993"}) {
		t.Errorf("text alone: %q", got)
	}
	insert("?", 42.0, "007", "1e5", "9007199254740993")
	got := stored()
	if testenv.OwnFlavor(t) == servers.KindMySQL && !slices.Equal(got, []string{"42", "7", "100000", "9.007199254740992e15"}) {
		t.Errorf("after a DOUBLE: %q", got)
	}
	w.exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', '9.007199254740992e15', '{"category_id": 1}'),
('product', '42.0', NULL), ('coupon', '1e5', NULL), ('product', '-7', '{"category_id": 1}')`)
	w.set("c:1e5", "p:-7", "category:1:a")
	w.worker(worker.Config{}).drain(t)
	rows, err := w.db.QueryContext(t.Context(), "SELECT reason, error FROM cache_outbox_dead ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var dead []string
	for rows.Next() {
		var reason, text string
		if err := rows.Scan(&reason, &text); err != nil {
			t.Fatal(err)
		}
		dead = append(dead, reason+" "+text)
	}
	for i, value := range []string{`"id": "9.007199254740992e15" is a float`, `"id": "42.0" is a float`} {
		if len(dead) != 2 || !strings.HasPrefix(dead[i], "bad_parameter ") || !strings.Contains(dead[i], value) || !strings.Contains(dead[i], "docs/adopting.md#ids-from-drivers") {
			t.Errorf("dead letters: %q, wanted %s", dead, value)
			break
		}
	}
	if left := w.left(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}
