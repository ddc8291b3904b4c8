package testenv

import (
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql" // for OpenDB
	"github.com/redis/go-redis/v9"
)

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Client returns a client of the Redis at a URL, with changed options, which closes with the test.
func Client(t testing.TB, url string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	Must(t, err)
	o.ContextTimeoutEnabled, o.PoolSize = true, 40
	for _, c := range change {
		c(o)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// OpenDB opens a database, which closes with the test.
func OpenDB(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	Must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
