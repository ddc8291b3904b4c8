package examples

import (
	"context"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/examples/shopcache"
)

func TestNameIsCached(t *testing.T) {
	useDev(t)                      // sets APP_ENV of the map
	store := cachetest.NewStore(t) // in the place of Redis
	products := store.Cache(cache.Config{})
	row := "tea" // in the place of MySQL
	wantName := func(want string) {
		t.Helper()
		got, err := cache.FetchRead(t.Context(), products, shopcache.ProductPage(42), func(context.Context) (string, error) { return row, nil })
		if got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	wantName("tea")
	row = "coffee"
	wantName("tea")
	// the worker after the commit
	store.Apply(shippedMap(t), shopcache.InvalidateProduct(42, shopcache.ProductParams{CategoryID: []int64{7}}))
	wantName("coffee")
	row = "milk"
	store.Advance(time.Hour) // beyond the TTL of the map
	wantName("milk")
}
