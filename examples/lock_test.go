package examples

import (
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/migrations"
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
	redeemOnce(t, env.DB, "SUMMER", func() (*lock.Locker, error) { return NewLocks(addrs[0], env.DSN) })
	redeemOnce(t, env.DB, "WINTER", func() (*lock.Locker, error) { return NewRedlock(addrs, env.DSN) })
	servers := testenv.OwnZooKeeper(t, 1, "").Addrs()
	redeemOnce(t, env.DB, "SPRING", func() (*lock.Locker, error) { return NewZooKeeperLocks(servers, env.DSN) })
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
				for try := 1; try < 50 && err != nil && !errors.Is(err, errUsed); try++ { // a busy machine takes more than the default Timeout
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

// Two who merge the same carts in both directions do not wait for each other, and one cart has all items in the end.
func TestMergeCarts(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	run(t, env.DB, "CREATE TABLE cart_items (item VARCHAR(20) PRIMARY KEY, cart VARCHAR(20) NOT NULL)")
	run(t, env.DB, "INSERT INTO cart_items VALUES ('tea', '1'), ('cup', '2')")
	addr := testenv.OwnRedis(t).Addr()
	var group sync.WaitGroup
	for _, carts := range [][2]string{{"1", "2"}, {"2", "1"}} {
		locks, err := NewLocks(addr, env.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		group.Go(func() {
			err := mergeCarts(t.Context(), locks, env.DB, carts[0], carts[1])
			for try := 1; try < 50 && err != nil; try++ { // a busy machine takes more than the default Timeout
				err = mergeCarts(t.Context(), locks, env.DB, carts[0], carts[1])
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	var carts, items int
	if err := env.DB.QueryRow("SELECT COUNT(DISTINCT cart), COUNT(*) FROM cart_items").Scan(&carts, &items); err != nil {
		t.Fatal(err)
	}
	if carts != 1 || items != 2 {
		t.Errorf("%d items in %d carts", items, carts)
	}
}
