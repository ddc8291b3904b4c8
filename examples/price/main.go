// Command price prints prices of products, which it reads through the cache: docs/tutorial.md.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"strconv"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/examples/shopcache"
)

// price returns the price of a product, and its source.
func price(ctx context.Context, c *cache.Cache, db *sql.DB, id int64) (cents int, from string, err error) {
	from = "Redis"
	cents, err = cache.FetchRead(ctx, c, shopcache.ProductPage(id), func(ctx context.Context) (cents int, err error) {
		from = "MySQL"
		err = db.QueryRowContext(ctx, "SELECT price_cents FROM products WHERE id = ?", id).Scan(&cents)
		return cents, err
	})
	return cents, from, err
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, ids []string) error {
	if err := shopcache.Map.Check(); err != nil {
		return err
	}
	db, err := sql.Open("mysql", os.Getenv("MYSQL_DSN"))
	if err != nil {
		return err
	}
	defer db.Close()
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	c, err := cache.New(cache.Config{Redis: client, NotFound: sql.ErrNoRows})
	if err != nil {
		return err
	}
	defer c.Close()
	for _, text := range ids {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		cents, from, err := price(ctx, c, db, id)
		if err != nil {
			return err
		}
		fmt.Println(text, "costs", cents, "from", from)
	}
	return nil
}
