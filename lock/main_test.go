package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lock"
	"github.com/unstale/unstale/migrations"
)

func TestMain(m *testing.M) {
	keyspace.SetClientLog(nil)
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it refuses none but nil
	if name := os.Getenv(holderVariable); name != "" {
		if err := holdOnOrder(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Main(m)
}

const (
	// long is a TTL of which no test sees the third, even on a busy machine.
	long = 10 * time.Minute
	// short is one that tests wait for.
	short = 3 * time.Second
	// patient is a Timeout that a busy machine does not reach.
	patient = 10 * time.Second
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clientOf is a client that heeds contexts and closes with the test.
func clientOf(t testing.TB, addr string, change ...func(*redis.Options)) *redis.Client {
	options := &redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 40}
	for _, c := range change {
		c(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A world is a Redis or a path in ZooKeeper and, if asked for, a database with the tables, of one test's own.
type world struct {
	testing.TB
	backend lock.Backend // nil: Redis
	addr    string       // of Redis
	redis   *redis.Client
	env     *testenv.Database
}

func newWorld(t testing.TB) *world {
	t.Helper()
	addr := testenv.OwnRedis(t).Addr()
	return &world{TB: t, addr: addr, redis: clientOf(t, addr)}
}

// withMySQL is a world of Redis, with a database.
func withMySQL(t testing.TB, names ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.addMySQL(names...)
	return w
}

// addMySQL adds a database with a counter of each name.
func (w *world) addMySQL(names ...string) {
	w.Helper()
	w.env = testenv.MySQL(w.TB)
	_, err := migrations.Up(w.Context(), w.env.DB)
	must(w, err)
	w.sql("CREATE TABLE counters (name VARCHAR(20) PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	for _, name := range names {
		w.sql("INSERT INTO counters VALUES (?, 0)", name)
	}
}

func (w *world) sql(query string, args ...any) {
	w.Helper()
	_, err := w.env.DB.ExecContext(w.Context(), query, args...)
	must(w, err)
}

func (w *world) counter(name string) (n int) {
	w.Helper()
	must(w, w.env.DB.QueryRowContext(w.Context(), "SELECT n FROM counters WHERE name = ?", name).Scan(&n))
	return n
}

// locker is one of the world's, closed with the test. A zero TTL is long.
func (w *world) locker(config lock.Config) *lock.Locker {
	w.Helper()
	switch {
	case config.Backend != nil:
	case w.backend != nil:
		config.Backend = w.backend
	default:
		config.Backend = lock.Redis{Client: w.redis}
	}
	if config.TTL == 0 {
		config.TTL = long
	}
	if config.MintWait == 0 {
		config.MintWait = 30 * time.Second
	}
	if config.Timeout == 0 {
		config.Timeout = min(patient, config.TTL/3)
		if _, ok := config.Backend.(lock.ZooKeeper); ok { // a request to three servers, which opens a session
			config.Timeout = min(6*patient, config.TTL/3)
		}
	}
	if w.env != nil && config.MySQL == nil {
		dsn, err := mysql.ParseDSN(w.env.DSN)
		must(w, err)
		config.MySQL = dsn
	}
	l, err := lock.New(config)
	must(w, err)
	w.Cleanup(func() { must(w, l.Close()) })
	return l
}

func (w *world) acquire(l *lock.Locker, name string) *lock.Held {
	w.Helper()
	held, err := l.Acquire(w.Context(), name)
	must(w, err)
	w.Cleanup(func() { _ = held.Release() })
	return held
}

// add is a section: it reads the counter, and writes one more.
func add(ctx context.Context, tx *sql.Tx, name string) error {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT n FROM counters WHERE name = ?", name).Scan(&n); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE counters SET n = ? WHERE name = ?", n+1, name)
	return err
}

// wantError fails unless err wraps all of them.
func wantError(t testing.TB, what string, err error, wanted ...error) {
	t.Helper()
	for _, want := range wanted {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, wanted %v", what, err, want)
		}
	}
}

// calls is how many scripts Redis has run.
func (w *world) calls(command string) (n int64) {
	w.Helper()
	text, err := w.redis.InfoMap(w.Context(), "commandstats").Result()
	must(w, err)
	_, _ = fmt.Sscanf(text["Commandstats"]["cmdstat_"+command], "calls=%d,", &n)
	return n
}

// waits reports whether somebody waits for a row of a table. The list of transactions in information_schema would not do:
// the server does not look again while it is asked more often than ten times a second.
func (w *world) waits(table string) bool {
	w.Helper()
	var kind, name, status string
	must(w, w.env.DB.QueryRowContext(w.Context(), "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status))
	for line := range strings.Lines(status) {
		if strings.Contains(line, "of table `"+w.env.Name+"`.`"+table+"`") && strings.HasSuffix(strings.TrimSpace(line), " waiting") {
			return true
		}
	}
	return false
}
