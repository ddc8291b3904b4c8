// Command application is a shop that uses the packages that applications import. It exits with 0 if
// each does its job. Package internal/docs builds it on the tags of a release.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/limit"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/zk"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	config, err := mysql.ParseDSN(os.Getenv("MYSQL_DSN"))
	if err != nil {
		return err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	if _, err := migrations.Up(ctx, db); err != nil {
		return err
	}
	options, err := redisurl.FromEnv(redisurl.Cache)
	if err != nil {
		return err
	}
	client := redis.NewUniversalClient(redisurl.Recommended(options))
	defer client.Close()
	codes, err := limit.New(limit.Config{Redis: client, Prefix: "shop:limit:", Max: 1, Window: time.Hour, Timeout: 10 * time.Second, WhenAway: limit.Refuse})
	if err != nil {
		return err
	}
	for _, want := range []bool{true, false} {
		if d, err := codes.Take(ctx, "555"); err != nil || d.Allowed != want {
			return fmt.Errorf("a code: %+v, %w, wanted %t", d, err, want)
		}
	}

	products, err := cache.New(cache.Config{Redis: client, Prefix: "shop:"})
	if err != nil {
		return err
	}
	defer products.Close()
	price := 4890
	want := func(want int) error {
		got, err := cache.Fetch(ctx, products, "product:42", func(context.Context) (int, error) { return price, nil }, cache.Moderate)
		if err == nil && got != want {
			err = fmt.Errorf("the price is %d, wanted %d", got, want)
		}
		return err
	}
	if err := want(4890); err != nil {
		return err
	}
	locks, err := lock.New(lock.Config{Backend: zk.Backend{Servers: []string{os.Getenv("ZOOKEEPER")}, Root: "/shop"}, MySQL: config})
	if err != nil {
		return err
	}
	defer locks.Close()
	err = locks.Do(ctx, "product:42", func(ctx context.Context, held *lock.Held) error {
		return held.InTx(ctx, db, func(tx *sql.Tx) error {
			price = 4490
			return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "product", ID: "42"})
		})
	})
	if err != nil {
		return err
	}
	if err := want(4890); err != nil { // still in Redis
		return err
	}
	w, err := worker.New(worker.Config{MySQL: config, Redis: options, MapFile: "mapping.yaml"})
	if err != nil {
		return err
	}
	if _, err := w.Drain(ctx); err != nil {
		return err
	}
	return want(4490)
}
