package cachetest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
)

const applyMap = `
version: 1
limits: {params: 100}
params:
  category: {lookup: {by: [id], sql: "SELECT id, c FROM t WHERE id IN (?)"}}
  parent: {lookup: {by: [category], always: true, sql: "SELECT c, p FROM t WHERE c IN (?)"}}
entities:
  product: {params: [category], keys: ["shop:product:{id}"], patterns: ["shop:list:{category}:*"], sets: ["shop:pages:{id}"], tags: ["product-{id}"]}
  variant: {params: [product], as: {product: "{product}"}}
  shelf: {params: [category, parent], keys: ["shop:shelf:{parent}"]}
  coupon: {keys: ["shop:coupon:{id}"], hold: 1m}
`

func aMap(t *testing.T) *invalidation.Map {
	t.Helper()
	m, err := invalidation.Parse("map.yaml", []byte(applyMap), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A row invalidates what the map says: keys, tags, patterns and members of index sets, also through
// as, and nothing else.
func TestApply(t *testing.T) {
	t.Parallel()
	m := aMap(t)
	for _, row := range []outbox.Invalidation{
		{Entity: "product", ID: "42", Params: map[string]any{"category": []int{7, 9}}},
		{Entity: "variant", ID: "5", Params: map[string]any{"product": 42, "category": []int{7, 9}}},
		{Entity: "variant", ID: "5", RawParams: json.RawMessage(`{"product": "42", "category": [7, 9]}`)},
	} {
		store := cachetest.NewStore(t)
		c := store.Cache(cache.Config{Prefix: "shop:"})
		for _, key := range []string{"product:42", "product:43", "list:7:1", "list:8:1", "list:9:1", "page:a", "page:b"} {
			put(t, c, key, cache.Moderate)
		}
		put(t, c, "tagged", cache.Moderate.Tagged("product-42"))
		store.AddToSet("shop:pages:42", "shop:page:a")
		store.AddToSet("shop:pages:43", "shop:page:b")
		store.Apply(m, row)
		for key, want := range map[string]bool{
			"product:42": false, "product:43": true, "list:7:1": false, "list:8:1": true, "list:9:1": false,
			"page:a": false, "page:b": true, "tagged": false,
		} {
			wantFresh(t, c, key, want)
		}
	}
}

// The values of a lookup that always runs come from the row alone.
func TestApplyAlways(t *testing.T) {
	t.Parallel()
	store := cachetest.NewStore(t)
	c := store.Cache(cache.Config{})
	put(t, c, "shop:shelf:3", cache.Moderate)
	store.Apply(aMap(t), outbox.Invalidation{Entity: "shelf", ID: "1", Params: map[string]any{"category": 7, "parent": 3}})
	wantFresh(t, c, "shop:shelf:3", false)
}

// Nothing is stored while the map's hold lasts.
func TestApplyHold(t *testing.T) {
	t.Parallel()
	store := cachetest.NewStore(t)
	c := store.Cache(cache.Config{})
	put(t, c, "shop:coupon:X", cache.Moderate)
	store.Apply(aMap(t), outbox.Invalidation{Entity: "coupon", ID: "X"})
	put(t, c, "shop:coupon:X", cache.Moderate)
	wantFresh(t, c, "shop:coupon:X", false)
	store.Advance(time.Minute)
	put(t, c, "shop:coupon:X", cache.Moderate)
	wantFresh(t, c, "shop:coupon:X", true)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.text.WriteString(fmt.Sprintf(format, args...))
	panic(r)
}

// A row that is refused, or lacks the value of a lookup, fails the test with the name of the
// parameter. Then no row is applied.
func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	m := aMap(t)
	for _, c := range []struct {
		row  outbox.Invalidation
		want string
	}{
		{outbox.Invalidation{Entity: "product", ID: "42"}, `apply product 42: missing_parameter "category"`},
		{outbox.Invalidation{Entity: "variant", ID: "5", Params: map[string]any{"category": 7}}, `missing_parameter "product"`},
		{outbox.Invalidation{Entity: "shelf", ID: "1", Params: map[string]any{"category": 7}}, `missing_parameter "parent"`},
		{outbox.Invalidation{Entity: "planet", ID: "1"}, `unknown_entity`},
		{outbox.Invalidation{Entity: "coupon"}, `id: is empty`},
		{outbox.Invalidation{Entity: "coupon", ID: "X", RawParams: json.RawMessage(`{"a": "` + strings.Repeat("x", 100) + `"}`)}, `params_too_large`},
	} {
		r := &recorder{TB: t}
		store := cachetest.NewStore(r)
		reader := store.Cache(cache.Config{})
		put(t, reader, "shop:coupon:X", cache.Moderate)
		func() {
			defer func() { _ = recover() }()
			store.Apply(m, outbox.Invalidation{Entity: "coupon", ID: "X"}, c.row)
		}()
		if !strings.Contains(r.text.String(), c.want) {
			t.Errorf("%+v: got %q, want %q", c.row, r.text.String(), c.want)
		}
		wantFresh(t, reader, "shop:coupon:X", true)
	}
}
