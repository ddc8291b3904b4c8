package examples

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/redisurl"
)

// Of many that try at once, one redeems the coupon: by one Redis, by three, and by ZooKeeper.
func TestRedeem(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	run(t, env.DB, "CREATE TABLE coupons (code VARCHAR(20) PRIMARY KEY, used BOOL NOT NULL DEFAULT FALSE)")
	addrs := []string{testenv.OwnRedis(t).Addr(), testenv.OwnRedis(t).Addr(), testenv.OwnRedis(t).Addr()}
	redeemOnce(t, env.DB, "SUMMER", func() (*lock.Locker, error) { return NewLocks(clientAt(t, addrs[0]), env.DSN) })
	redeemOnce(t, env.DB, "WINTER", func() (*lock.Locker, error) { return NewRedlock(addrs, env.DSN) })
	servers := testenv.OwnZooKeeper(t, 1, "").Addrs()
	redeemOnce(t, env.DB, "SPRING", func() (*lock.Locker, error) { return NewZooKeeperLocks(servers, env.DSN) })
}

// clientAt returns a client of a server, as newRedis makes it.
func clientAt(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	client := redis.NewUniversalClient(redisurl.Recommended(&redis.UniversalOptions{Addrs: []string{addr}}))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func redeemOnce(t *testing.T, db *sql.DB, code string, open func() (*lock.Locker, error)) {
	t.Helper()
	run(t, db, "INSERT INTO coupons (code) VALUES ('"+code+"')")
	var group sync.WaitGroup
	var redeemed atomic.Int64
	for range 3 { // tills
		locks, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		for range 3 {
			group.Go(func() {
				err := redeem(t.Context(), locks, db, code)
				// a busy machine takes more than the default Timeout
				for try := 1; try < 50 && err != nil && !errors.Is(err, errUsed); try++ {
					err = redeem(t.Context(), locks, db, code)
				}
				switch {
				case err == nil:
					redeemed.Add(1)
				case !errors.Is(err, errUsed):
					t.Error(err)
				}
			})
		}
	}
	group.Wait()
	var rows int
	if err := db.QueryRow("SELECT COUNT(*) FROM cache_outbox WHERE entity_id = ?", code).Scan(&rows); err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	if redeemed.Load() != 1 || rows != 1 {
		t.Errorf("%s was redeemed %d times, with %d rows", code, redeemed.Load(), rows)
	}
}

// Two who merge the same carts in both directions do not wait for each other, and neither goes by
// what the other one changes.
func TestMergeCarts(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	run(t, env.DB, "CREATE TABLE carts (id VARCHAR(20) PRIMARY KEY, items INT NOT NULL)")
	client := clientAt(t, testenv.OwnRedis(t).Addr())
	var tills [2]*lock.Locker
	for i := range tills {
		locks, err := NewLocks(client, env.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		tills[i] = locks
	}
	// for callers that wait for each other
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for range 20 {
		run(t, env.DB, "REPLACE INTO carts VALUES ('1', 3), ('2', 5)")
		var group sync.WaitGroup
		for i, carts := range [][2]string{{"1", "2"}, {"2", "1"}} {
			group.Go(func() {
				err := mergeCarts(ctx, tills[i], env.DB, carts[0], carts[1])
				// a busy machine takes more than the default Timeout
				for try := 1; try < 50 && err != nil; try++ {
					err = mergeCarts(ctx, tills[i], env.DB, carts[0], carts[1])
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		var carts, items int
		if err := env.DB.QueryRow("SELECT COUNT(*), COALESCE(SUM(items), 0) FROM carts").Scan(&carts, &items); err != nil {
			t.Fatal(err)
		}
		if carts != 1 || items != 8 {
			t.Fatalf("%d items in %d carts", items, carts)
		}
	}
}
