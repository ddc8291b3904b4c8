package cache_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
)

// Entries that no cache fetched are listed in the order of the map, and keys that were fetched by
// hand by their form.
func TestUnfetched(t *testing.T) {
	t.Parallel()
	store := cachetest.NewStore(t)
	config := cache.Config{Prefix: "shop-eu:"}
	a, b := store.Cache(config), store.Cache(config)
	m, page := aReadMap()
	if err := m.Use(environment("APP_ENV", "prod")); err != nil {
		t.Fatal(err)
	}
	m.Entry("list", cache.Options{TTL: time.Minute})
	home := m.Entry("home", cache.Options{TTL: time.Minute})
	load := func(context.Context) (int, error) { return 1, nil }
	byHand := func(key string) {
		if _, err := cache.Fetch(t.Context(), a, key, load, nil); err != nil {
			t.Fatal(err)
		}
	}
	byHand("early:1")
	if s := a.Statistics(); s.OtherKeys != nil || !slices.Equal(m.Unfetched(s), []string{"product_page", "list", "home"}) {
		t.Errorf("%q, %q", s.OtherKeys, m.Unfetched(s))
	}
	for c, read := range map[*cache.Cache]cache.Read{a: page.Read("shop-eu:product:42"), b: home.Read("shop-us:home")} {
		if _, err := cache.FetchRead(t.Context(), c, read, load); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.Unfetched(a.Statistics(), b.Statistics()); !slices.Equal(got, []string{"list"}) {
		t.Errorf("%q", got)
	}
	for _, key := range []string{"prodct:42", "prodct:43", "order:7f3a-11:lines:p2", "about", strings.Repeat("x", 200)} {
		byHand(key)
	}
	want := []string{"shop-eu:about", "shop-eu:order:#:lines:#", "shop-eu:prodct:#", "shop-eu:" + strings.Repeat("x", 120)}
	if got := a.Statistics().OtherKeys; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for i := range 30 {
		byHand(fmt.Sprint("code:", string(rune('a'+i))))
	}
	if got := a.Statistics().OtherKeys; len(got) != 20 || b.Statistics().OtherKeys != nil {
		t.Errorf("%q", got)
	}
}
