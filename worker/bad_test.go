package worker_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

func readFile(t testing.TB, file string) string {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

const lookupMap = `
version: 1
publish: {channel: "cache:invalidate"}
params:
  category_id: {lookup: {by: [id], sql: "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"}}
  broken:      {lookup: {by: [id], sql: "SELECT product_id, category_id FROM no_such_table WHERE product_id IN (?)"}}
entities:
  product:
    params: [category_id]
    keys: ["shop:product:{id}", "shop:category:{category_id}"]
  variant:
    params: [product_id, category_id]
    as: {product: "{product_id}"}
  lost:   {params: [broken], keys: ["shop:lost:{broken}"]}
  wide:   {patterns: ["shop:{id}*"]}
  page:   {params: [n], keys: ["shop:page:{n}"]}
`

// Sentence 6: each kind of bad row is dead-lettered with its reason, and the other rows of the
// batch are processed.
func TestBadRowsAreDeadLettered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lookupMap+"limits: {params: 64KiB, keys_per_row: 100, pattern_prefix: 8}\n")
	w.exec("CREATE TABLE product_categories (product_id INT NOT NULL, category_id INT NOT NULL)")
	w.exec("INSERT INTO product_categories VALUES (1, 7), (42, 9)")
	w.set("shop:product:1", "shop:product:2", "shop:category:7")
	w.enqueue(outbox.Invalidation{Entity: "product", ID: "1"})
	w.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('planet', 'unknown')")
	w.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('page', 'missing')")
	w.exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('page', 'huge', CONCAT('{"n":"', REPEAT('x', 10 * 1024 * 1024), '"}'))`)
	w.exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('page', 'array', '[1, 2]')`)
	w.exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('page', 'nested', '{"n": {"a": 1}}')`)
	w.exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('page', 'twice', '{"n": 1, "n": 2}')`)
	w.exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('page', 'null', '{"n": null}')`)
	w.exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('page', 'within', '{"n": 1, "m": {"a": 1, "a": 2}}')`)
	w.exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', '2', '{"n": {"a": [[1]]}, "m": [{}]}')`)
	w.exec("INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('page', 'many', ?)", `{"n": [`+strings.Repeat("1,2,3,4,5,", 30)+`"x"`+strings.Join(texts(100, ",%d"), "")+`]}`)
	w.exec("INSERT IGNORE INTO cache_outbox (entity, entity_id) VALUES ('product', REPEAT('9', 300))")
	w.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '')")
	w.enqueue(
		outbox.Invalidation{Entity: "lost", ID: "sql"},
		outbox.Invalidation{Entity: "product", ID: "042"}, outbox.Invalidation{Entity: "wide", ID: "ab"},
	)
	total := w.worker(worker.Config{}).drain(t)
	if left := w.left(); len(left) != 0 || total.Unlinked != 2 {
		t.Errorf("left %q, %+v", left, total)
	}
	if n := w.count("cache_outbox") + w.count("cache_outbox_delayed"); n != 0 {
		t.Errorf("%d rows are neither done nor dead", n)
	}
	checkDead(t, w, map[string][2]string{
		"unknown": {"unknown_entity", "planet"}, "missing": {"missing_parameter", "n"}, "null": {"missing_parameter", "n"},
		"huge": {"params_too_large", "10485768 bytes"}, "array": {"bad_parameter", "object"}, "nested": {"bad_parameter", "n"},
		"twice": {"bad_parameter", "n"}, "within": {"bad_parameter", "m"}, "many": {"too_many_keys", "100"}, "": {"bad_parameter", "empty"},
		strings.Repeat("9", 256): {"bad_parameter", "entity_id fills its column"}, "sql": {"lookup_failed", "no_such_table"},
		"042": {"lookup_failed", `asked for ["042"]`}, "ab": {"pattern_too_wide", "8"},
	})
}

// checkDead compares the dead letters, by entity id, with reason and a part of the error.
func checkDead(t *testing.T, w *world, want map[string][2]string) {
	t.Helper()
	rows, err := w.db.Query("SELECT entity_id, reason, error, map_version FROM cache_outbox_dead")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var id, reason, text, version string
		if err := rows.Scan(&id, &reason, &text, &version); err != nil {
			t.Fatal(err)
		}
		seen++
		if reason != want[id][0] || !strings.Contains(text, want[id][1]) || len(version) != 12 {
			t.Errorf("%.20q: %s, %q, map %s; wanted %q", id, reason, text, version, want[id])
		}
	}
	if seen != len(want) {
		t.Errorf("%d dead letters, wanted %d", seen, len(want))
	}
}

// Lookups: what the row does not say is asked once for the whole batch, in the context of the
// entity that uses it; what it says, an empty list too, is not asked.
func TestLookups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lookupMap)
	w.exec("CREATE TABLE product_categories (product_id VARCHAR(20) NOT NULL, category_id INT NULL)")
	w.exec("INSERT INTO product_categories VALUES ('1', 7), ('1', 8), ('3', NULL), ('5', 11), ('v5', 99), ('A', 1)")
	for _, c := range []string{"1", "7", "8", "9", "11", "99"} {
		w.set("shop:category:" + c)
	}
	w.enqueue(
		outbox.Invalidation{Entity: "product", ID: "1"},
		outbox.Invalidation{Entity: "product", ID: "2"},
		outbox.Invalidation{Entity: "product", ID: "3"},
		outbox.Invalidation{Entity: "product", ID: "4", Params: map[string]any{"category_id": 9}},
		outbox.Invalidation{Entity: "product", ID: "A", Params: map[string]any{"category_id": []int{}}},
		outbox.Invalidation{Entity: "variant", ID: "v5", Params: map[string]any{"product_id": 5}},
	)
	w.worker(worker.Config{}).drain(t)
	if got := strings.Join(w.left(), " "); got != "shop:category:1 shop:category:99" {
		t.Errorf("left %s", got)
	}
	if n := w.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// A lookup may begin with WITH: here it finds all that is above a category.
func TestLookupOfATree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `version: 1
params:
  ancestor:
    lookup:
      by: [id]
      sql: |
        WITH RECURSIVE above (id, ancestor) AS (
          SELECT id, parent_id FROM categories WHERE id IN (?)
          UNION ALL SELECT above.id, c.parent_id FROM above JOIN categories AS c ON c.id = above.ancestor)
        SELECT id, ancestor FROM above
entities:
  category: {params: [ancestor], keys: ["shop:category:{id}", "shop:category:{ancestor}"]}
`)
	w.exec("CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT NULL)")
	w.exec("INSERT INTO categories VALUES (1, NULL), (2, 1), (3, 2), (4, 2), (5, 1)")
	for _, c := range []string{"1", "2", "3", "4", "5"} {
		w.set("shop:category:" + c)
	}
	w.enqueue(outbox.Invalidation{Entity: "category", ID: "3"}, outbox.Invalidation{Entity: "category", ID: "5"})
	w.worker(worker.Config{}).drain(t)
	if got := strings.Join(w.left(), " "); got != "shop:category:4" {
		t.Errorf("left %s", got)
	}
	if n := w.count("cache_outbox_dead"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// A server that compares more loosely than this package ("042" is 42, "a" may be "A") never makes a
// wrong list of a row: only the ambiguous row is refused.
func TestLookupAnswersForAnotherID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lookupMap)
	w.exec("CREATE TABLE product_categories (product_id VARCHAR(20) NOT NULL, category_id INT NOT NULL) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	w.exec("INSERT INTO product_categories VALUES ('abc', 7), ('x', 8)")
	w.set("shop:category:7", "shop:category:8")
	w.enqueue(
		outbox.Invalidation{Entity: "product", ID: "abc"}, outbox.Invalidation{Entity: "product", ID: "ABC"},
		outbox.Invalidation{Entity: "product", ID: "X"}, outbox.Invalidation{Entity: "product", ID: "none"},
		outbox.Invalidation{Entity: "product", ID: "7"},
	)
	total := w.worker(worker.Config{}).drain(t)
	if left := strings.Join(w.left(), " "); left != "shop:category:8" || total.Unlinked != 3 {
		t.Errorf("left %s, %+v", left, total)
	}
	checkDead(t, w, map[string][2]string{
		"ABC": {"lookup_failed", `the answer is for ["abc"]`}, "X": {"lookup_failed", `the answer is for ["x"]`},
	})
}

// A lookup that the server ends for the time that it took delays its rows, with an attempt and the
// reason.
func TestSlowLookupsAreDelayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lookupMap)
	w.lookupTimeout = 100 * time.Millisecond
	w.exec("CREATE TABLE product_categories (product_id INT NOT NULL, category_id INT NOT NULL)")
	blocker, err := w.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close()
	if _, err := blocker.ExecContext(t.Context(), "LOCK TABLES product_categories WRITE"); err != nil {
		t.Fatal(err)
	}
	w.enqueue(outbox.Invalidation{Entity: "product", ID: "1"}, outbox.Invalidation{Entity: "page", ID: "1", Params: map[string]any{"n": 1}})
	r := w.worker(worker.Config{RetryDelay: time.Minute})
	if got := r.drain(t); got.Unlinked != 1 || got.Delayed != 1 || got.Dead != 0 {
		t.Errorf("%+v", got)
	}
	var attempts int
	var reason, text string
	if err := w.db.QueryRow("SELECT attempts, reason, error FROM cache_outbox_delayed").Scan(&attempts, &reason, &text); err != nil {
		t.Fatal(err)
	}
	if attempts != 1 || reason != "lookup_failed" || !strings.Contains(text, "no answer within 100ms: Error ") {
		t.Errorf("%d attempts, %s, %s", attempts, reason, text)
	}
	if _, err := blocker.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
}

// The log counts every row that died, under its own reason, those too that die within the interval
// between two lines.
func TestEveryDeadLetterIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lookupMap)
	r := w.worker(worker.Config{})
	stop := r.start(t)
	w.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('planet', '1'), ('page', '2'), ('planet', '3'), ('product', '')")
	testenv.Eventually(t, "the rows are dead-lettered", func() bool { return w.count("cache_outbox_dead") == 4 })
	w.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('planet', '5'), ('page', '6'), ('planet', '7')")
	testenv.Eventually(t, "the rows are dead-lettered", func() bool { return w.count("cache_outbox_dead") == 7 })
	stop()
	told := map[string]int{}
	for line := range strings.Lines(r.log.String()) {
		if _, rest, found := strings.Cut(line, "rows are dead letters now, see 'unstale dead list'\" rows="); found {
			var n int
			var reason string
			if _, err := fmt.Sscanf(rest, "%d reason=%s ", &n, &reason); err != nil {
				t.Fatal(line, err)
			}
			told[reason] += n
		}
	}
	if want := map[string]int{"unknown_entity": 4, "missing_parameter": 2, "bad_parameter": 1}; !maps.Equal(told, want) {
		t.Errorf("told %v, wanted %v", told, want)
	}
}

// NULL as a trace means none, as ORMs send it: such rows are found, processed, delayed and
// dead-lettered like others.
func TestNullAsATrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plainMap)
	w.set("shop:thing:1", "shop:thing:2")
	w.exec("INSERT INTO cache_outbox (entity, entity_id, trace) VALUES ('thing', '1', NULL), ('planet', '9', NULL)")
	w.exec("INSERT INTO cache_outbox_delayed (entity, entity_id, trace, due_at) VALUES ('thing', '2', NULL, UTC_TIMESTAMP(6)), ('thing', '3', NULL, UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)")
	r := w.worker(worker.Config{})
	rows, _, err := store.Pending(t.Context(), r.store.Sessions, store.PendingQuery{All: true}, 10)
	if err != nil || len(rows) != 4 {
		t.Errorf("%+v, %v", rows, err)
	}
	if total := r.drain(t); total.Unlinked != 2 || len(w.left()) != 0 || w.count("cache_outbox") != 0 || w.count("cache_outbox_delayed") != 1 {
		t.Errorf("%+v, left %q", total, w.left())
	}
	if letters, err := store.NewActions(r.store.Sessions).DeadLetters(t.Context(), store.DeadQuery{}, 10); err != nil || len(letters) != 1 || letters[0].EntityID != "9" || letters[0].Trace != "" {
		t.Errorf("%+v, %v", letters, err)
	}
}
