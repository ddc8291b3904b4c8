package capture_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// An earlier version printed testdata/older-*.sql (unstale capture sql) for this schema and
// section.
var olderSchema = append(slices.Clone(threeLevels),
	"CREATE TABLE labels (id INT PRIMARY KEY, variant_id INT, FOREIGN KEY (variant_id) REFERENCES variants (id) ON DELETE CASCADE)",
	"CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT, FOREIGN KEY (parent_id) REFERENCES categories (id) ON DELETE CASCADE)",
	"CREATE TABLE brands (id INT PRIMARY KEY)",
	"CREATE TABLE offers (id INT PRIMARY KEY, brand_id INT, FOREIGN KEY (brand_id) REFERENCES brands (id) ON DELETE SET NULL ON UPDATE CASCADE)",
	"CREATE TABLE prices (id INT PRIMARY KEY, amount DOUBLE, factor FLOAT, until TIMESTAMP NULL, `a``b` INT, name VARCHAR(9))",
)

const olderSection = `  images: {entity: product, id: id, params: {value: position}}
  labels: {entity: product, id: id, on: [delete], on_error: skip}
  categories: {entity: category, id: id, on: [delete]}
  offers: {entity: product, id: id, on: [update], watch: [brand_id]}
  prices: {entity: product, id: "{row}.id", on: [update]}
`

// A trigger of an earlier version that has a defect, or is slower, is reported and replaced. The
// others stay.
func TestOlderTriggers(t *testing.T) {
	t.Parallel()
	s := newShop(t, olderSchema...)
	src, err := os.ReadFile("testdata/older-" + string(s.Flavor) + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	conn := s.conn()
	s.do(conn, "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'")
	for statement := range strings.SplitSeq(string(src), "$$\n") {
		if _, create, ok := strings.Cut(statement, "CREATE DEFINER = 'root'@'localhost' "); ok {
			s.do(conn, "CREATE "+create)
		}
	}
	s.do(conn, "SET SESSION sql_mode = DEFAULT")
	outdated := []string{
		"AFTER UPDATE on prices", "BEFORE DELETE on brands", "BEFORE DELETE on categories", "BEFORE DELETE on products", "BEFORE DELETE on variants", "BEFORE UPDATE on brands",
	}
	changed := []string{"AFTER UPDATE on images", "AFTER UPDATE on offers"} // without a defect
	want := []string{"changed: " + changed[0], "changed: " + changed[1],
		"in place: AFTER DELETE on categories", "in place: AFTER DELETE on images", "in place: AFTER DELETE on labels", "in place: AFTER INSERT on images"}
	for _, one := range outdated {
		want = append(want, "outdated: "+one)
	}
	if got := s.states(olderSection); !slices.Equal(got, want) {
		t.Errorf("states %q, wanted %q", got, want)
	}
	var done []string
	for _, one := range s.apply(olderSection) {
		verb, rest, _ := strings.Cut(one, " ")
		what, _, _ := strings.Cut(rest, ": ")
		done = append(done, what+" "+verb)
	}
	slices.Sort(done)
	var both []string
	for _, one := range append(changed, outdated...) {
		both = append(both, one+" create", one+" drop")
	}
	if !slices.Equal(done, both) {
		t.Errorf("done %q, wanted %q", done, both)
	}
	if got := s.apply(olderSection); len(got) > 0 {
		t.Errorf("a second time: %q", got)
	}
}
