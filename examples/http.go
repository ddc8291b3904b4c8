package examples

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/examples/shopcache"
)

// edgeLongest bounds the time in a CDN, since no invalidation reaches it.
const edgeLongest = 30 * time.Second

// cacheHeaders reports where a value came from, and lets a CDN keep it while it is fresh.
func cacheHeaders[T any](h http.Header, r cache.Result[T]) {
	from := "HIT"
	switch {
	case r.Stale:
		from = "STALE"
	case r.Source == cache.FromLoader:
		from = "MISS"
	}
	h.Set("X-Cache", from)
	h.Set("Cache-Control", fmt.Sprintf("public, max-age=0, s-maxage=%d", min(r.FreshFor, edgeLongest)/time.Second))
}

// ProductHandler answers with the name of the product {id} of the path.
func ProductHandler(products *cache.Cache, db *sql.DB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		result, err := cache.FetchReadResult(r.Context(), products, shopcache.ProductPage(id), func(ctx context.Context) (name string, err error) {
			return name, db.QueryRowContext(ctx, "SELECT name FROM products WHERE id = ?", id).Scan(&name)
		})
		switch {
		case errors.Is(err, cache.ErrNotFound):
			http.NotFound(w, r)
		case err != nil:
			http.Error(w, "try again", http.StatusServiceUnavailable)
		default:
			cacheHeaders(w.Header(), result)
			fmt.Fprint(w, result.Value)
		}
	}
}
