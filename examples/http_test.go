package examples

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/examples/shopcache"
)

// The headers report where a value came from. A CDN keeps it while it is fresh, and no longer than
// the bound.
func TestCacheHeaders(t *testing.T) {
	t.Parallel()
	useDev(t)
	db := shop(t)
	run(t, db, "ALTER TABLE products ADD name VARCHAR(20) NOT NULL DEFAULT 'tea'")
	store := cachetest.NewStore(t)
	products := store.Cache(cache.Config{NotFound: sql.ErrNoRows})
	key := shopcache.ProductPage(42).Key()
	mux := http.NewServeMux()
	mux.Handle("/products/{id}", ProductHandler(products, db))
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return w
	}
	check := func(w *httptest.ResponseRecorder, from string, least, most int) {
		t.Helper()
		var seconds int
		_, err := fmt.Sscanf(w.Header().Get("Cache-Control"), "public, max-age=0, s-maxage=%d", &seconds)
		if got := w.Header().Get("X-Cache"); err != nil || w.Body.String() != "tea" || got != from || seconds < least || seconds > most {
			t.Errorf("%d %q, %v, %v; want %s, %d to %d s", w.Code, w.Body, w.Header(), err, from, least, most)
		}
	}
	want := func(from string, least, most int) {
		t.Helper()
		check(get("/products/42"), from, least, most)
	}
	want("MISS", 30, 30)
	want("HIT", 30, 30)
	if ok, err := products.Expire(t.Context(), key, 20*time.Second); err != nil || !ok {
		t.Fatal(ok, err)
	}
	want("HIT", 1, 20)
	store.Invalidate(key)
	want("MISS", 30, 30)
	store.Advance(4 * time.Minute) // shorter than any TTL
	w := get("/products/42")
	for w.Header().Get("X-Cache") == "HIT" {
		store.Advance(30 * time.Second)
		w = get("/products/42")
	}
	check(w, "STALE", 0, 0)
	for _, path := range []string{"/products/43", "/products/43", "/products/x"} {
		if w = get(path); w.Code != http.StatusNotFound || w.Header().Get("Cache-Control")+w.Header().Get("X-Cache") != "" {
			t.Errorf("%s: %d, %v", path, w.Code, w.Header())
		}
	}
}
