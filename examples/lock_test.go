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

// Of many that try at once, one redeems the coupon.
func TestRedeem(t *testing.T) {
	t.Parallel()
	addr := testenv.OwnRedis(t).Addr()
	redeemAtOnce(t, func(dsn string) (*lock.Locker, error) { return NewLocks(addr, dsn) })
}

func TestRedeemWithZooKeeper(t *testing.T) {
	t.Parallel()
	servers := testenv.OwnZooKeeper(t, 1, "").Addrs()
	redeemAtOnce(t, func(dsn string) (*lock.Locker, error) { return NewZooKeeperLocks(servers, dsn) })
}

func redeemAtOnce(t *testing.T, newLocks func(dsn string) (*lock.Locker, error)) {
	t.Helper()
	env := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	run(t, env.DB, "CREATE TABLE coupons (code VARCHAR(20) PRIMARY KEY, used BOOL NOT NULL DEFAULT FALSE)", "INSERT INTO coupons (code) VALUES ('SUMMER')")
	var group sync.WaitGroup
	var redeemed atomic.Int64
	for range 3 { // tills
		locks, err := newLocks(env.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		for range 3 {
			group.Go(func() {
				switch err := redeem(t.Context(), locks, env.DB, "SUMMER"); {
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
	if err := env.DB.QueryRow("SELECT COUNT(*) FROM cache_outbox").Scan(&rows); err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	if redeemed.Load() != 1 || rows != 1 {
		t.Errorf("redeemed %d times, with %d rows", redeemed.Load(), rows)
	}
}
