package examples

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/examples/shopcache"
	"github.com/unstale/unstale/internal/testenv"
)

// A product is loaded once, read from Redis afterwards, and loaded again when its key is gone; what
// does not exist is remembered too.
func TestProduct(t *testing.T) {
	t.Parallel()
	useDev(t)
	db := shop(t)
	run(t, db, "ALTER TABLE products ADD name VARCHAR(20) NOT NULL DEFAULT 'shirt'")
	options, err := redis.ParseURL(testenv.Redis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	products, err := cache.New(cache.Config{Redis: client, NotFound: sql.ErrNoRows, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer products.Close()
	want := func(want string) {
		t.Helper()
		if name, err := Product(t.Context(), products, db, 42); err != nil || name != want {
			t.Errorf("got %q, %v, want %q", name, err, want)
		}
	}
	want("shirt")
	run(t, db, "UPDATE products SET name = 'hat'")
	want("shirt") // nobody has invalidated it yet
	key := shopcache.ProductPage(42).Key()
	if err := client.Unlink(t.Context(), "lock:fill:{"+key+"}", key).Err(); err != nil {
		t.Fatal(err)
	}
	want("hat")
	for range 2 {
		if _, err := Product(t.Context(), products, db, 43); !errors.Is(err, cache.ErrNotFound) {
			t.Errorf("a product that does not exist: %v", err)
		}
	}
	if s := products.Statistics(); s.L2Hits != 2 || s.Loads != 3 {
		t.Errorf("%+v", s)
	}
}

// The account and the tables are there, so memory waits for nothing but workers.
func TestNewProducts(t *testing.T) {
	t.Parallel()
	options, err := redis.ParseURL(testenv.Redis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	products, err := NewProducts(t.Context(), client, shop(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := products.Healthy(); err == nil {
		t.Error("memory is open, and nobody is heard")
	}
	if err := products.Close(); err != nil {
		t.Error(err)
	}
}
