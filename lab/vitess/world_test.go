//go:build vitess

package vitess_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/lab/rig"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// vschema has one vindex for the outbox and for the tables of the shop.
const vschema = `{"sharded": true, "vindexes": {"hash": {"type": "hash"}}, "tables": {
"products": {"column_vindexes": [{"column": "id", "name": "hash"}]},
"captured": {"column_vindexes": [{"column": "id", "name": "hash"}]},
"ledger": {"column_vindexes": [{"column": "product", "name": "hash"}]},
"cache_outbox": {"column_vindexes": [{"column": "entity_id", "name": "hash"}]},
"cache_outbox_delayed": {"column_vindexes": [{"column": "entity_id", "name": "hash"}]},
"cache_outbox_source": {"column_vindexes": [{"column": "one", "name": "hash"}]},
"cache_outbox_locks": {"column_vindexes": [{"column": "name", "name": "hash"}]}}}`

const mapText = `version: 1
entities:
  product:  {params: [n], keys: ["shop:product:{id}", "shop:tx:{n}"]}
  captured: {params: [n], keys: ["shop:captured:{id}", "shop:tx:{n}"]}
params:
  n: {}
capture:
  captured: {entity: captured, id: id, params: {n: price}}
`

const account = "unstale:vitess"

// A world is a shop on two shards, and a keyspace without shards. The shards are two databases of
// one MySQL.
type world struct {
	*testing.T
	mysql  *servers.MySQL
	vitess *servers.Vitess
	cache  *redis.Client
	shop   *sql.DB // through VTGate
	shards []*shard
	binary string
	env    []string
}

// A shard is the database of one, without VTGate.
type shard struct {
	name, dsn string
	db        *sql.DB
}

// newWorld starts the servers. args are options of vtcombo.
func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	w := &world{T: t, binary: filepath.Join(t.TempDir(), "unstale")}
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", w.binary, "./cmd/unstale").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	w.mysql = testenv.OwnMySQL(t, rig.MySQLArgs...)
	var err error
	w.vitess, err = servers.StartVitess(t.Context(), servers.VitessOptions{MySQL: w.mysql, Args: args, Keyspaces: []servers.Keyspace{
		{Name: "shop", Shards: []string{"-80", "80-"}, VSchema: vschema},
		{Name: "whole", Shards: []string{"0"}, VSchema: `{"sharded": false}`},
	}})
	w.must(err)
	t.Cleanup(func() { w.must(w.vitess.Close()) })
	w.shop = w.open(w.vitess.DSN("shop"))
	w.exec(w.shop, "CREATE TABLE products (id BIGINT PRIMARY KEY, price BIGINT NOT NULL)")
	w.exec(w.shop, "CREATE TABLE captured (id BIGINT PRIMARY KEY, price BIGINT NOT NULL)")
	w.exec(w.shop, "CREATE TABLE ledger (product BIGINT, tx BIGINT, PRIMARY KEY (product, tx))")
	file := filepath.Join(t.TempDir(), "map.yaml")
	w.must(os.WriteFile(file, []byte(mapText), 0o600))
	r := testenv.OwnRedis(t)
	w.cache = testenv.Client(t, r.URL())
	w.env = []string{"UNSTALE_MAP=" + file, "REDIS_URL=" + r.URL()}
	w.must(rig.Prepare(t.Context(), w.mysql, "CREATE USER 'unstale'@'%' IDENTIFIED BY 'vitess'", "GRANT ALL ON *.* TO 'unstale'@'%'"))
	w.migrate("shop")
	for _, name := range []string{"-80", "80-"} {
		s := w.shard("shop", name)
		w.shards = append(w.shards, s)
		w.unstale(s.dsn, "migrate", "up")
		w.unstale(s.dsn, "capture", "apply")
	}
	return w
}

// migrate creates the tables of the outbox on all shards, through VTGate.
func (w *world) migrate(keyspace string) {
	w.Helper()
	db := w.open(w.vitess.DSN(keyspace))
	for statement := range strings.SplitSeq(strings.TrimSpace(w.unstale("", "migrate", "print")), ";\n\n") {
		w.exec(db, strings.TrimSuffix(statement, ";"))
	}
}

func (w *world) shard(keyspace, name string) *shard {
	w.Helper()
	database := servers.ShardDatabase(keyspace, name)
	return &shard{name, account + "@tcp(" + w.mysql.Addr() + ")/" + database, w.open(w.mysql.DSN(database))}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// open returns connections whose errors are expected.
func (w *world) open(dsn string) *sql.DB {
	w.Helper()
	config, err := mysql.ParseDSN(dsn)
	w.must(err)
	config.Logger, config.InterpolateParams = &mysql.NopLogger{}, true
	config.Timeout, config.ReadTimeout, config.WriteTimeout = 5*time.Second, 30*time.Second, 30*time.Second
	connector, err := mysql.NewConnector(config)
	w.must(err)
	db := sql.OpenDB(connector)
	w.Cleanup(func() { _ = db.Close() })
	return db
}

// An execer is a *sql.DB, *sql.Conn or *sql.Tx.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (w *world) exec(db execer, query string, args ...any) {
	w.Helper()
	if _, err := db.ExecContext(context.WithoutCancel(w.Context()), query, args...); err != nil {
		w.Fatalf("%s: %v", query, err)
	}
}

func (w *world) count(db *sql.DB, query string, args ...any) (n int) {
	w.Helper()
	if err := db.QueryRowContext(w.Context(), query, args...).Scan(&n); err != nil {
		w.Fatalf("%s: %v", query, err)
	}
	return n
}

// call runs a command on a database and returns what it printed.
func (w *world) call(dsn string, args ...string) (text string, err error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.binary, args...)
	cmd.Env = append(w.env, "MYSQL_DSN="+dsn)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("unstale %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// unstale is call of a command that succeeds.
func (w *world) unstale(dsn string, args ...string) string {
	w.Helper()
	text, err := w.call(dsn, args...)
	w.must(err)
	return text
}
