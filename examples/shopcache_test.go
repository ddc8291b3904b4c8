package examples

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/examples/shopcache"
	"github.com/unstale/unstale/internal/maptool"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/protocol"
)

func shippedMap(t *testing.T) *invalidation.Map {
	t.Helper()
	src, err := os.ReadFile("../mapping.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := invalidation.Parse("mapping.yaml", src, devEnv)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// shopcache.go is the output of `unstale map generate` for mapping.yaml.
func TestShopcacheIsUpToDate(t *testing.T) {
	t.Parallel()
	want, err := maptool.GenerateGo(maptool.NamesOf(shippedMap(t)), "shopcache", "mapping.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("shopcache/shopcache.go")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; run: go run ./cmd/unstale map generate --package shopcache -o examples/shopcache/shopcache.go mapping.yaml", err)
	}
}

// Rows of generated constructors reach the keys of generated builders, and readers compute the
// fingerprint that workers compute.
func TestShopcacheReachesReaders(t *testing.T) {
	useDev(t)
	m := shippedMap(t)
	if got, want := shopcache.Map.Version(), m.Reads().Version(); got != want || got == "" {
		t.Errorf("fingerprint %q, the map has %q", got, want)
	}
	for _, c := range []struct {
		row  outbox.Invalidation
		read cache.Read
		kind string
	}{
		{shopcache.InvalidateProduct(42, shopcache.ProductParams{CategoryID: []int64{7}}), shopcache.ProductPage(42), "key"},
		{shopcache.InvalidateProduct(42, shopcache.ProductParams{CategoryID: []int64{7, 9}}), shopcache.CategoryList(9, 2, "price"), "pattern"},
		{shopcache.InvalidateVariant(5, []int64{42}, shopcache.VariantParams{CategoryID: []int64{7}}), shopcache.ProductPage(42), "key"},
		{shopcache.InvalidateCategory(7), shopcache.Home(), "key"},
		{shopcache.InvalidateShipping("1"), shopcache.ShippingCity("berlin"), "pattern"},
		{shopcache.InvalidateCoupon("SUMMER10"), shopcache.Coupon("SUMMER10"), "key"},
	} {
		params, err := c.row.ParamsJSON()
		if err != nil {
			t.Fatal(err)
		}
		row := invalidation.Row{Entity: c.row.Entity, ID: c.row.ID}
		if row.Params, err = invalidation.ParseParams(params); err != nil {
			t.Fatal(err)
		}
		plan, err := m.Expand(row, nil)
		if err != nil {
			t.Fatal(err)
		}
		key := c.read.Key()
		if c.kind == "key" && !slices.Contains(plan.Keys, key) {
			t.Errorf("%s is not among the keys %q of %s %s", key, plan.Keys, row.Entity, row.ID)
		}
		if c.kind == "pattern" && !slices.ContainsFunc(plan.Patterns, func(p string) bool { return matches(t, p, key) }) {
			t.Errorf("%s is not matched by %q of %s %s", key, plan.Patterns, row.Entity, row.ID)
		}
	}
}

// A reader with generated names contains no prefix, key or policy.
func TestFetchRead(t *testing.T) {
	useDev(t)
	products := cachetest.NewStore(t).Cache(cache.Config{})
	loads := 0
	for range 2 {
		name, err := cache.FetchRead(t.Context(), products, shopcache.ProductPage(42), func(context.Context) (string, error) { loads++; return "tea", nil })
		if name != "tea" || err != nil {
			t.Errorf("%q, %v", name, err)
		}
	}
	if loads != 1 {
		t.Errorf("%d loads", loads)
	}
	if s := products.Statistics().Reads["product_page"]; s.Misses != 1 || s.L2Hits != 1 {
		t.Errorf("%+v", s)
	}
}

// A fetch with generated names allocates no more than one by hand.
func TestFetchReadAllocates(t *testing.T) {
	useDev(t)
	c := cachetest.NewStore(t).Cache(cache.Config{Prefix: "zahraah:dev:"})
	load := func(context.Context) (string, error) { return "tea", nil }
	policy := shopcache.ProductPage(0).Policy()
	byHand := testing.AllocsPerRun(500, func() {
		_, _ = cache.Fetch(context.Background(), c, "product:"+strconv.FormatInt(123_456, 10), load, policy)
	})
	generated := testing.AllocsPerRun(500, func() {
		_, _ = cache.FetchRead(context.Background(), c, shopcache.ProductPage(123_456), load)
	})
	if generated > byHand {
		t.Errorf("%v allocations, by hand %v", generated, byHand)
	}
}

// useDev sets the variables of the map for the whole process; all tests set the same ones.
func useDev(t *testing.T) {
	t.Helper()
	if err := shopcache.Map.Use(devEnv); err != nil {
		t.Fatal(err)
	}
}

func matches(t *testing.T, pattern, key string) bool {
	t.Helper()
	glob, err := protocol.CompileGlob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return glob.Match(key)
}

func devEnv(name string) (string, bool) {
	if name == "APP_ENV" {
		return "dev", true
	}
	return "", false
}
