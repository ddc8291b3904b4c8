package examples

import (
	"context"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
)

func TestNameIsCached(t *testing.T) {
	store := cachetest.NewStore(t) // in the place of Redis
	products := store.Cache(cache.Config{Prefix: "shop:"})
	row := "tea" // in the place of MySQL
	wantName := func(want string) {
		t.Helper()
		got, err := cache.Fetch(t.Context(), products, "product:42", func(context.Context) (string, error) { return row, nil }, cache.Moderate)
		if got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	wantName("tea")
	row = "coffee"
	wantName("tea")
	store.Invalidate("shop:product:42") // what the worker does after the commit
	wantName("coffee")
	row = "milk"
	store.Advance(time.Hour) // beyond the policy's TTL
	wantName("milk")
}
