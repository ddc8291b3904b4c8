package cache_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/storetest/schematest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// OnPrimary takes what sqlx gives.
var _ cache.Pool = (*sqlx.DB)(nil)

// A shop is a database with one product, the worker that serves it, and its Redis.
type shop struct {
	*testing.T
	env   *testenv.Database
	redis *testenv.RedisServer
}

const shopMap = `version: 1
entities:
  product: {keys: ["shop:product:{id}"], patterns: ["shop:products:*"], repeat: [1h]}
  price: {params: [currency], keys: ["shop:price:{id}:{currency}"]}
`

// newShop starts a worker that is paused.
func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t, testenv.MySQL(t), testenv.Redis(t)}
	schematest.Up(t, s.env.DB)
	s.exec("CREATE TABLE products (name VARCHAR(100) NOT NULL)")
	s.exec("INSERT INTO products VALUES ('old')")
	s.exec("INSERT INTO cache_outbox_control (name, who, reason) VALUES ('pause', 'test', '')")
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	testenv.Must(t, os.WriteFile(file, []byte(shopMap+"publish: {channel: \""+s.redis.Channel("invalidate")+"\"}\n"), 0o600))
	dsn, err := mysql.ParseDSN(s.env.DSN)
	testenv.Must(t, err)
	one := s.redis.Client.Options()
	w, err := worker.New(worker.Config{
		MySQL: dsn, Redis: &redis.UniversalOptions{Addrs: []string{one.Addr}, DB: one.DB}, MapFile: file, RedisTimeout: patient,
		Logger: slog.New(slog.DiscardHandler), WakeChannel: s.redis.Channel("wake"),
	})
	testenv.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); testenv.Must(t, <-ended) })
	return s
}

func (s *shop) exec(query string) {
	s.Helper()
	_, err := s.env.DB.ExecContext(s.Context(), query)
	testenv.Must(s, err)
}

func (s *shop) resume() { s.exec("DELETE FROM cache_outbox_control") }

// process returns a reading process with its own L1.
func (s *shop) process() *cache.Cache {
	s.Helper()
	memory := memoryOf(s.redis.Channel("invalidate"))
	memory.Sources, memory.MaxStaleness = nil, time.Minute
	c := newCache(s.T, cache.Config{Redis: testenv.Client(s, s.redis.URL), Prefix: "shop:", Memory: memory})
	open(s, c)
	return c
}

// load reads the product from the primary.
func (s *shop) load(ctx context.Context) (name string, err error) {
	conn, err := cache.OnPrimary(ctx, s.env.DB)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	err = conn.QueryRowContext(ctx, "SELECT name FROM products").Scan(&name)
	return name, err
}

// write is a request that changes the product: what it returns goes into a cookie.
func (s *shop) write(name string, inv outbox.Invalidation) (cookie string) {
	s.Helper()
	token, err := outbox.InTxToken(s.Context(), s.env.DB, func(tx *sql.Tx, writes *outbox.Writes) error {
		if _, err := tx.ExecContext(s.Context(), "UPDATE products SET name = ?", name); err != nil {
			return err
		}
		return writes.Enqueue(s.Context(), tx, inv)
	})
	testenv.Must(s, err)
	return token.String()
}

// after returns the policy of a request that shows a cookie.
func (s *shop) after(cookie string) *cache.Policy {
	s.Helper()
	token, err := outbox.ParseToken(cookie)
	testenv.Must(s, err)
	return cache.Moderate.After(outbox.NewCheck(s.env.DB, token))
}

// A writer reads its own writes in another process, whose L1, and Redis, hold the old value while
// the worker is paused. When it has resumed, Wait returns, for patterns too, and no caller reads
// the old value. Wait does not wait for a later repeat.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	reader := s.process()
	keys := []string{"product:1", "products:all"}
	for _, key := range keys {
		wantFetch(t, "before", reader, key, s.load, nil, "old", cache.FromLoader)
	}
	cookie := s.write("new", outbox.Invalidation{Entity: "product", ID: "1"})
	for _, key := range keys {
		wantFetch(t, "a stranger", reader, key, s.load, nil, "old", cache.FromMemory)
		wantFetch(t, "the writer", reader, key, s.load, s.after(cookie), "new", cache.FromLoader)
	}
	token, err := outbox.ParseToken(cookie)
	testenv.Must(t, err)
	waited := make(chan error, 1)
	go func() { waited <- outbox.Wait(context.Background(), s.env.DB, token) }()
	if settled, err := outbox.Settled(t.Context(), s.env.DB, token); settled || err != nil {
		t.Errorf("while the worker is paused: settled %t, %v", settled, err)
	}
	s.resume()
	testenv.Must(t, <-waited)
	for _, key := range keys {
		if n := s.redis.Client.Exists(t.Context(), "shop:"+key).Val(); n != 0 {
			t.Errorf("Redis still has %s", key)
		}
		got, err := cache.Fetch(t.Context(), reader, key, s.load, s.after(cookie))
		if err != nil || got != "new" {
			t.Errorf("settled: %s is %q, %v", key, got, err)
		}
		wantFetch(t, "the writer again", reader, key, s.load, s.after(cookie), "new", cache.FromRedis)
	}
	var repeats int
	testenv.Must(t, s.env.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM cache_outbox_delayed WHERE repeated = 1").Scan(&repeats))
	if repeats != 1 {
		t.Errorf("%d repeats wait: the test has lost its point", repeats)
	}
}

// A row that cannot be delivered leaves its keys unchanged: its writer gets the value of the
// loader, and Wait returns the reason.
func TestReadYourDeadLetters(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	reader := s.process()
	wantFetch(t, "before", reader, "price:1:EUR", s.load, nil, "old", cache.FromLoader)
	cookie := s.write("new", outbox.Invalidation{Entity: "price", ID: "1"}) // without its currency
	s.resume()
	token, err := outbox.ParseToken(cookie)
	testenv.Must(t, err)
	if err := outbox.Wait(t.Context(), s.env.DB, token); !errors.Is(err, outbox.ErrDead) {
		t.Errorf("wait: %v", err)
	}
	wantFetch(t, "a stranger", reader, "price:1:EUR", s.load, nil, "old", cache.FromMemory)
	wantFetch(t, "the writer", reader, "price:1:EUR", s.load, s.after(cookie), "new", cache.FromLoader)
}

// A server that is read-only is refused, by connections that the pool has kept too; afterwards it
// serves again.
func TestOnPrimary(t *testing.T) {
	t.Parallel()
	env := testenv.OwnDatabase(t)
	ask := func(ctx context.Context) (one int, err error) {
		conn, err := cache.OnPrimary(ctx, env.DB)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		err = conn.QueryRowContext(ctx, "SELECT 1").Scan(&one)
		return one, err
	}
	if one, err := ask(t.Context()); one != 1 || err != nil {
		t.Errorf("the primary: %d, %v", one, err)
	}
	_, err := env.DB.Exec("SET GLOBAL read_only = 1")
	testenv.Must(t, err)
	_, err = ask(t.Context())
	wantError(t, "read-only", err, cache.ErrReadOnly)
	if n := env.DB.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections to it are kept", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = ask(ctx)
	wantError(t, "context", err, context.Canceled)
	_, err = env.DB.Exec("SET GLOBAL read_only = 0")
	testenv.Must(t, err)
	var id int
	testenv.Must(t, env.DB.QueryRow("SELECT CONNECTION_ID()").Scan(&id))
	other, err := sql.Open("mysql", env.DSN)
	testenv.Must(t, err)
	defer other.Close()
	_, err = other.Exec(fmt.Sprint("KILL ", id)) // the pool does not know
	testenv.Must(t, err)
	if one, err := ask(t.Context()); one != 1 || err != nil {
		t.Errorf("after a lost connection: %d, %v", one, err)
	}
}
