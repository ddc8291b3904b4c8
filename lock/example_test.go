package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/migrations"
)

// shop starts a Redis and a database with the tables in it, and a table of coupons.
func shop(ctx context.Context) (addr, dsn string, stop func()) {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	cache, err := servers.StartRedis(ctx, servers.RedisOptions{})
	check(err)
	server, err := servers.StartMySQL(ctx, servers.MySQLOptions{Flavor: servers.Kind(os.Getenv("UNSTALE_TEST_DB"))})
	check(err)
	for _, statement := range []struct{ name, text string }{
		{"", "CREATE DATABASE shop"},
		{"shop", "CREATE TABLE coupons (code VARCHAR(20) PRIMARY KEY, used BOOL NOT NULL)"},
		{"shop", "INSERT INTO coupons VALUES ('SUMMER', FALSE)"},
	} {
		db, err := sql.Open("mysql", server.DSN(statement.name))
		check(err)
		_, err = db.ExecContext(ctx, statement.text)
		check(err)
		if statement.name != "" {
			_, err = migrations.Up(ctx, db)
			check(err)
		}
		check(db.Close())
	}
	return cache.Addr(), server.DSN("shop"), func() {
		check(cache.Close())
		check(server.Close())
	}
}

// The first caller redeems the coupon. The second one may have waited, and reads inside its own
// section.
func ExampleLocker_Do() {
	ctx := context.Background()
	addr, dsn, stop := shop(ctx)
	defer stop()

	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer client.Close()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	locks, err := lock.New(lock.Config{Backend: lock.Redis{Client: client}, MySQL: config, Timeout: 3 * time.Second})
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	for range 2 {
		err := locks.Do(ctx, "coupon:SUMMER", func(ctx context.Context, held *lock.Held) error {
			return held.InTx(ctx, db, func(tx *sql.Tx) error {
				var used bool
				if err := tx.QueryRowContext(ctx, "SELECT used FROM coupons WHERE code = 'SUMMER'").Scan(&used); err != nil {
					return err
				}
				if used {
					return errors.New("the coupon was redeemed already")
				}
				_, err := tx.ExecContext(ctx, "UPDATE coupons SET used = TRUE WHERE code = 'SUMMER'")
				return err
			})
		})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// the coupon was redeemed already
}

// A job that another replica runs already is left to it.
func ExampleHeldError() {
	runOnce := func(ctx context.Context, locks *lock.Locker, job func(ctx context.Context) error) error {
		held, err := locks.TryAcquire(ctx, "nightly report")
		var taken *lock.HeldError
		if errors.As(err, &taken) {
			slog.Info("somebody else is at it", "holder", taken.Holder, "for", taken.For)
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(job(held.Context()), held.Release())
	}
	_ = runOnce
}
