package worker_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

const vanishMap = `version: 1
publish: {channel: "cache:invalidate"}
params: {locale: {optional: true}}
entities:
  coupon:  {keys: ["shop:coupon:{id}"]}
  product: {params: [locale], keys: ["shop:product:{id}", "shop:product:{id}:{locale}"], repeat: [1ms]}
  variant: {params: [product_id], keys: ["shop:variant:{id}"], as: {product: "{product_id}"}}
`

// Unused values of a row, and templates that make nothing of them, are counted once, when the row
// is settled. They are logged immediately and then once per hour.
func TestVanishedIsCountedAndToldOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, vanishMap)
	var down atomic.Bool
	r := w.worker(worker.Config{}, func(real worker.Redis) worker.Redis { return failing{real, &down} })
	checkVanished(t, r, [3]string{"0", "0", "0"}, [3]string{"0", "0", "0"})
	variants := outbox.Invalidation{Entity: "variant", ID: "7", Params: map[string]any{"product_id": []int{5, 6}}}
	w.set("shop:coupon:1", "shop:product:5")
	w.exec(`INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('coupon', '1', '{"locale": "ar", "old": {"price": [1]}}'), ('planet', '2', '{"x": 1}')`)
	w.enqueue(
		variants,
		outbox.Invalidation{Entity: "product", ID: "9", Params: map[string]any{"locale": "ar"}},
		// its dead letter reports it
		outbox.Invalidation{Entity: "variant", ID: "8", Params: map[string]any{"productid": 5}},
	)
	down.Store(true)
	if _, err := r.Drain(t.Context()); err == nil {
		t.Error("no batch has failed")
	}
	down.Store(false)
	checkVanished(t, r, [3]string{"0", "0", "0"}, [3]string{"0", "0", "0"})
	r.drain(t)
	if left := w.left(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	checkVanished(t, r, [3]string{"0", "0", "2"}, [3]string{"2", "0", "0"},
		"WARN rows give parameters that the map does not declare for their entity, and they are ignored, see 'unstale map explain'"+
			" parameters=2 entity=coupon id=1 parameter=locale",
		"INFO templates made nothing, since rows do not give an optional name"+
			" templates=2 entity=variant id=7 template=shop:product:{id}:{locale} absent=locale as=product")

	for w.count("cache_outbox_delayed") > 0 { // repeats are not counted again
		r.drain(t)
	}
	w.enqueue(outbox.Invalidation{Entity: "product", ID: "5", Params: map[string]any{"x": 1}}, outbox.Invalidation{Entity: "coupon", ID: "2", Params: map[string]any{"x": 1}})
	r.drain(t)
	checkVanished(t, r, [3]string{"0", "1", "2"}, [3]string{"3", "1", "0"})

	r.TellVanished()
	w.enqueue(outbox.Invalidation{Entity: "product", ID: "6", Params: map[string]any{"y": []int{}}})
	r.drain(t)
	checkVanished(t, r, [3]string{"0", "2", "2"}, [3]string{"3", "2", "0"},
		"WARN rows give parameters that the map does not declare for their entity, and they are ignored, see 'unstale map explain'"+
			" parameters=3 entity=product id=6 parameter=y",
		"INFO templates made nothing, since rows do not give an optional name"+
			" templates=2 entity=product id=6 template=shop:product:{id}:{locale} absent=locale")
}

// checkVanished compares the counts of coupons, products and variants, and the lines since the last
// look, sorted.
func checkVanished(t *testing.T, r *running, dropped, undeclared [3]string, lines ...string) {
	t.Helper()
	for name, want := range map[string][3]string{"unstale_templates_dropped_total": dropped, "unstale_params_undeclared_total": undeclared} {
		wantSeries(t, r, name, map[string]string{
			`entity="coupon"`: want[0], `entity="product"`: want[1], `entity="variant"`: want[2], `entity="unknown"`: "0",
		})
	}
	told := []string{}
	for line := range strings.Lines(r.log.take()) {
		_, text, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, `"`, "")), "level=")
		if text = strings.Replace(text, "msg=", "", 1); strings.Contains(text, " parameters=") || strings.Contains(text, " templates=") {
			told = append(told, text)
		}
	}
	slices.Sort(told)
	slices.Sort(lines)
	if !slices.Equal(told, lines) {
		t.Errorf("told %q\nwanted %q", told, lines)
	}
}
