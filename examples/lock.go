package examples

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/lock/zk"
	"github.com/unstale/unstale/outbox"
)

// NewLocks makes the locks of a process, once. dsn names the database that sections change.
func NewLocks(state redis.UniversalClient, dsn string) (*lock.Locker, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("the DSN cannot be read") // the driver's error may show the password
	}
	return lock.New(lock.Config{Backend: lock.Redis{Client: state}, MySQL: config})
}

// NewRedlock makes the locks of a process, once, on independent Redis.
func NewRedlock(addrs []string, dsn string) (*lock.Locker, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("the DSN cannot be read") // the driver's error may show the password
	}
	var clients []*redis.Client
	for _, addr := range addrs { // in the same order in every process
		clients = append(clients, redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}))
	}
	return lock.New(lock.Config{Backend: lock.Redlock{Clients: clients}, MySQL: config})
}

// NewZooKeeperLocks makes locks that are kept in ZooKeeper. servers are addresses such as
// zk1.internal:2181.
func NewZooKeeperLocks(servers []string, dsn string) (*lock.Locker, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("the DSN cannot be read") // the driver's error may show the password
	}
	return lock.New(lock.Config{Backend: zk.Backend{Servers: servers}, MySQL: config})
}

var errUsed = errors.New("the coupon was redeemed already")

// redeem redeems a coupon once, whoever else tries, and whatever happens to Redis meanwhile.
func redeem(ctx context.Context, locks *lock.Locker, db *sql.DB, code string) error {
	err := locks.Do(ctx, "coupon:"+code, func(ctx context.Context, held *lock.Held) error {
		return held.InTx(ctx, db, func(tx *sql.Tx) error {
			var used bool
			if err := tx.QueryRowContext(ctx, "SELECT used FROM coupons WHERE code = ?", code).Scan(&used); err != nil {
				return err
			}
			if used {
				return errUsed
			}
			if _, err := tx.ExecContext(ctx, "UPDATE coupons SET used = TRUE WHERE code = ?", code); err != nil {
				return err
			}
			return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "coupon", ID: code})
		})
	})
	if errors.Is(err, lock.ErrLostAfterCommit) {
		return nil // the coupon is redeemed
	}
	return err
}

// mergeCarts moves what is in one cart to another, and removes it, while somebody else may do it
// the other way round.
func mergeCarts(ctx context.Context, locks *lock.Locker, db *sql.DB, from, to string) error {
	err := locks.DoAll(ctx, []string{"cart:" + from, "cart:" + to}, func(ctx context.Context, held *lock.HeldAll) error {
		return held.InTx(ctx, db, func(tx *sql.Tx) error {
			var moved, there int
			err := tx.QueryRowContext(ctx, "SELECT f.items, t.items FROM carts AS f, carts AS t WHERE f.id = ? AND t.id = ?", from, to).Scan(&moved, &there)
			if errors.Is(err, sql.ErrNoRows) {
				return nil // they were merged before
			}
			if err == nil {
				_, err = tx.ExecContext(ctx, "UPDATE carts SET items = ? WHERE id = ?", there+moved, to)
			}
			if err == nil {
				_, err = tx.ExecContext(ctx, "DELETE FROM carts WHERE id = ?", from)
			}
			return err
		})
	})
	if errors.Is(err, lock.ErrLostAfterCommit) {
		return nil // the carts are merged
	}
	return err
}
