package examples

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/examples/shopcache"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
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

// A writer stores the row as it is under the lease. It waits for the worker, and stores nothing
// once another write came.
func TestStoreProduct(t *testing.T) {
	t.Parallel()
	useDev(t)
	db, dsn := shopWithDSN(t)
	run(t, db, "ALTER TABLE products ADD name VARCHAR(20) NOT NULL DEFAULT 'shirt'")
	store := cachetest.NewStore(t)
	products := store.Cache(cache.Config{NotFound: sql.ErrNoRows})
	token, err := renameProduct(t.Context(), db, 42, "hat")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- StoreProduct(t.Context(), products, db, 42, token) }()
	for range 2 { // renamed again, before the worker comes
		if _, err := renameProduct(t.Context(), db, 42, "cap"); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("it has not waited for the worker: %v", err)
	default:
	}
	run(t, db, "DELETE FROM cache_outbox") // what the worker does at the end
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if name, err := Product(t.Context(), products, db, 42); err != nil || name != "cap" || products.Statistics().Loads != 0 {
		t.Errorf("%q, %v, %+v", name, err, products.Statistics())
	}
	lease, err := products.Lease(t.Context(), shopcache.ProductPage(42).Key(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := StoreProduct(t.Context(), products, db, 42, outbox.Token{}); !errors.Is(err, cache.ErrTaken) {
		t.Errorf("beside a reader that loads: %v", err)
	}
	lease.Release(t.Context())
	if err := StoreProduct(t.Context(), products, db, 43, outbox.Token{}); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("a product that does not exist: %v", err)
	}
	if name, err := Product(t.Context(), products, db, 43); !errors.Is(err, cache.ErrNotFound) { // the lease is free
		t.Errorf("%q, %v", name, err)
	}
	raced, err := openStepping(dsn, func(name string) error {
		if strings.HasPrefix(name, "after SELECT name") {
			store.Invalidate(shopcache.ProductPage(42).Key())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer raced.Close()
	if err := StoreProduct(t.Context(), products, raced, 42, outbox.Token{}); !errors.Is(err, cache.ErrLeaseLost) {
		t.Errorf("a write between reading and storing: %v", err)
	}
}
