package examples

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/migrations"
)

// A section whose lock is lost between its COMMIT and the release has done its work: no example
// reports that as a failure.
func TestLostAfterCommit(t *testing.T) {
	t.Parallel()
	env, addr := testenv.MySQL(t), testenv.OwnRedis(t).Addr()
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	run(t, env.DB, "CREATE TABLE coupons (code VARCHAR(20) PRIMARY KEY, used BOOL NOT NULL DEFAULT FALSE)", "INSERT INTO coupons (code) VALUES ('FALL')",
		"CREATE TABLE jobs (name VARCHAR(50) PRIMARY KEY, last BIGINT NOT NULL DEFAULT 0)", "INSERT INTO jobs (name) VALUES ('report')",
		"CREATE TABLE runs (id INT AUTO_INCREMENT PRIMARY KEY)",
		"CREATE TABLE carts (id VARCHAR(20) PRIMARY KEY, items INT NOT NULL)", "INSERT INTO carts VALUES ('1', 3), ('2', 5)")
	config, err := mysql.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	lost := 0
	db, err := openStepping(env.DSN, func(name string) error {
		if name != "after COMMIT" {
			return nil
		}
		keys, err := client.Keys(t.Context(), "lock:*").Result()
		if err == nil {
			err = client.Del(t.Context(), keys...).Err()
		}
		if err != nil {
			t.Error(err)
		}
		lost += len(keys)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	backend := lock.Redis{Client: redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})}
	// a busy machine takes more than the default Timeout
	locks, err := lock.New(lock.Config{Backend: backend, MySQL: config, TTL: time.Minute, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Client.Close()
	defer locks.Close()
	report := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO runs VALUES ()")
		return err
	}
	if err := redeem(t.Context(), locks, db, "FALL"); err != nil {
		t.Errorf("redeem: %v", err)
	}
	if err := runOnce(t.Context(), locks, db, "report", time.Now(), report); err != nil {
		t.Errorf("runOnce: %v", err)
	}
	if err := mergeCarts(t.Context(), locks, db, "1", "2"); err != nil {
		t.Errorf("mergeCarts: %v", err)
	}
	if lost != 4 {
		t.Errorf("%d locks were lost, wanted 4", lost)
	}
	var used, rows, runs, carts, items int
	err = env.DB.QueryRow(`SELECT (SELECT COUNT(*) FROM coupons WHERE used), (SELECT COUNT(*) FROM cache_outbox), (SELECT COUNT(*) FROM runs),
(SELECT COUNT(*) FROM carts), (SELECT SUM(items) FROM carts)`).Scan(&used, &rows, &runs, &carts, &items)
	if err != nil {
		t.Fatal(err)
	}
	if used != 1 || rows != 1 || runs != 1 || carts != 1 || items != 8 {
		t.Errorf("%d coupons are used, with %d rows; %d runs; %d carts with %d items", used, rows, runs, carts, items)
	}
}
