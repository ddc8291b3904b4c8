package worker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// A map of an earlier release, whose lookups are right for one row alone, is right for a batch too,
// and the log names the faults.
func TestDeprecatedMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `version: 1
params:
  limited: {lookup: {by: [id], sql: "SELECT product, category FROM listed WHERE product IN (?) ORDER BY category LIMIT 1"}}
  largest: {lookup: {by: [id], sql: "SELECT product, MAX(category) FROM listed WHERE product IN (?)"}}
  all: {lookup: {by: [id], sql: "SELECT product, GROUP_CONCAT(category ORDER BY category) FROM listed WHERE product IN (?)"}}
  any: {lookup: {by: [id], sql: "SELECT product, CONCAT(shop, category) FROM listed WHERE product IN (?) GROUP BY product, category"}}
  literal: {lookup: {by: [id], sql: "SELECT product, category FROM listed WHERE product IN (?) AND shop = '{shop}'"}}
entities:
  product: {params: [limited, largest, all, any, literal], keys: ["limited:{limited}", "largest:{largest}", "all:{all}", "any:{any}", "literal:{literal}"]}
`)
	w.exec("CREATE TABLE listed (product INT, category INT, shop VARCHAR(9), INDEX (product))")
	w.exec("INSERT INTO listed VALUES (1, 7, 'a'), (1, 9, 'a'), (2, 8, 'a'), (3, 5, 'a'), (3, 6, 'a')")
	for _, name := range strings.Fields("limited:7 limited:8 limited:5 largest:9 largest:8 largest:6 all:7,9 all:8 all:5,6 any:a7 any:a9 any:a8 any:a5 any:a6 literal:7") {
		w.set(name)
	}
	for id := range 4 {
		w.enqueue(outbox.Invalidation{Entity: "product", ID: fmt.Sprint(id)})
	}
	r := w.worker(worker.Config{})
	total := r.drain(t)
	if left := strings.Join(w.left(), " "); left != "literal:7" || total.Unlinked != 4 {
		t.Errorf("left %s, %+v", left, total)
	}
	if got := r.MapWarning(); !strings.Contains(got, `:3:37: "LIMIT": `) || !strings.HasSuffix(got, " (and 4 more)") {
		t.Error(got)
	}
	log := r.log.String()
	for _, want := range []string{
		`"map has a fault that the next release refuses"`, `\"LIMIT\": a lookup is asked`, `\"MAX\": `, `\"GROUP_CONCAT\": `, `\"{shop}\": the SQL`,
		`"map has a lookup that the next release refuses" sql="SELECT product, CONCAT(shop, category)`, "Error 1055",
	} {
		if n := strings.Count(log, want); n < 1 {
			t.Errorf("the log does not have %s", want)
		}
	}
	if n := strings.Count(log, "that the next release refuses"); n != 4+1 {
		t.Errorf("%d lines, wanted one for each fault of the map and one for what MySQL refuses", n)
	}
}
