package examples

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jmoiron/sqlx"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/migrations"
	"github.com/unstale/unstale/outbox"
)

// GORM never ends what keeps its prepared statements, nor scs what cleans up the store that it has
// before it is given one.
func TestMain(m *testing.M) {
	outbox.SetTracer(traceparent)
	if text := os.Getenv(crashVariable); text != "" {
		if err := orderAndCrash(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Main(m, "gorm.io/gorm/internal/lru.NewLRU[...].func1", "github.com/alexedwards/scs/v2/memstore.(*MemStore).startCleanup")
}

// A transaction is one that a library has begun. change sets the price of product 42 to 4490 and
// enqueues it.
type transaction struct {
	change, commit, rollback func() error
}

var libraries = map[string]func(t *testing.T, db *sql.DB) transaction{
	"sqlx": func(t *testing.T, db *sql.DB) transaction {
		tx, err := sqlx.NewDb(db, "mysql").BeginTxx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return transaction{func() error { return setPriceSqlx(t.Context(), tx, 42, 4490) }, tx.Commit, tx.Rollback}
	},
	"GORM":                          func(t *testing.T, db *sql.DB) transaction { return beginGORM(t, db, &gorm.Config{}) },
	"GORM with prepared statements": func(t *testing.T, db *sql.DB) transaction { return beginGORM(t, db, &gorm.Config{PrepareStmt: true}) },
	"ent":                           func(t *testing.T, db *sql.DB) transaction { return beginEnt(t, entsql.OpenDB(dialect.MySQL, db)) },
	"ent with its debugging driver": func(t *testing.T, db *sql.DB) transaction {
		return beginEnt(t, dialect.Debug(entsql.OpenDB(dialect.MySQL, db), t.Log))
	},
}

func openGORM(t *testing.T, db *sql.DB, config *gorm.Config) *gorm.DB {
	t.Helper()
	g, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: db}), config)
	if err != nil {
		t.Fatal(err)
	}
	return g.WithContext(t.Context())
}

func beginGORM(t *testing.T, db *sql.DB, config *gorm.Config) transaction {
	t.Helper()
	tx := openGORM(t, db, config).Begin()
	if tx.Error != nil {
		t.Fatal(tx.Error)
	}
	return transaction{
		change:   func() error { return setPriceGORM(tx, 42, 4490) },
		commit:   func() error { return tx.Commit().Error },
		rollback: func() error { return tx.Rollback().Error },
	}
}

func beginEnt(t *testing.T, driver dialect.Driver) transaction {
	t.Helper()
	tx, err := driver.Tx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return transaction{func() error { return setPriceEnt(t.Context(), tx, 42, 4490) }, tx.Commit, tx.Rollback}
}

// The row shares the fate of the change: nobody sees it before the commit, and a rollback takes
// both.
func TestRowSharesTheFateOfTheChange(t *testing.T) {
	t.Parallel()
	for name, begin := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := shop(t)
			for _, c := range []struct {
				end  func(transaction) func() error
				want string
			}{
				{func(tx transaction) func() error { return tx.rollback }, "4990 and 0 rows"},
				{func(tx transaction) func() error { return tx.commit }, "4490 and 1 rows"},
			} {
				tx := begin(t, db)
				if err := tx.change(); err != nil {
					t.Fatal(err)
				}
				if got := state(t, db); got != "4990 and 0 rows" {
					t.Errorf("before the end others see %s", got)
				}
				if err := c.end(tx)(); err != nil {
					t.Fatal(err)
				}
				if got := state(t, db); got != c.want {
					t.Errorf("after the end there is %s, wanted %s", got, c.want)
				}
			}
		})
	}
}

// With database/sql alone: what Enqueue cannot insert takes the change with it.
func TestDatabaseSQL(t *testing.T) {
	t.Parallel()
	db := shop(t)
	run(t, db, "ALTER TABLE cache_outbox RENAME TO away")
	if err := changePrice(t.Context(), db, 42, 4490); err == nil {
		t.Error("a row without a table")
	}
	run(t, db, "ALTER TABLE away RENAME TO cache_outbox")
	if got := state(t, db); got != "4990 and 0 rows" {
		t.Errorf("after a failure there is %s", got)
	}
	if err := changePrice(t.Context(), db, 42, 4490); err != nil {
		t.Fatal(err)
	}
	if got := state(t, db); got != "4490 and 1 rows" {
		t.Errorf("after the commit there is %s", got)
	}
	run(t, db, "ALTER TABLE products ADD name VARCHAR(20) NOT NULL DEFAULT 'shirt'")
	token, err := renameProduct(t.Context(), db, 42, "hat")
	if err != nil {
		t.Fatal(err)
	}
	if settled, err := outbox.Settled(t.Context(), db, token); err != nil || settled {
		t.Errorf("settled before a worker came: %t, %v", settled, err)
	}
	if err := moveProduct(t.Context(), db, 42, 7, 9); err != nil {
		t.Fatal(err)
	}
	var moved string
	if err := db.QueryRowContext(t.Context(), `SELECT CONCAT_WS(' ', params, (SELECT category_id FROM product_categories))
		FROM cache_outbox ORDER BY id DESC LIMIT 1`).Scan(&moved); err != nil || moved != `{"category_id":[7,9]} 9` {
		t.Errorf("moved: %s, %v", moved, err)
	}
}

// Outside a transaction each helper refuses, and says what to do.
func TestOutsideATransaction(t *testing.T) {
	t.Parallel()
	db := shop(t)
	inv := outbox.Invalidation{Entity: "product", ID: "42"}
	for _, config := range []*gorm.Config{{}, {PrepareStmt: true}} {
		if err := enqueueGORM(openGORM(t, db, config), inv); err == nil || !strings.Contains(err.Error(), "within db.Transaction") {
			t.Errorf("GORM: %v", err)
		}
	}
	if err := enqueueEnt(t.Context(), dialect.NopTx(entsql.OpenDB(dialect.MySQL, db)), inv); err == nil || !strings.Contains(err.Error(), "begin it with") {
		t.Errorf("ent: %v", err)
	}
	if got := state(t, db); got != "4990 and 0 rows" {
		t.Errorf("there is %s", got)
	}
}

// shop returns a database with the outbox and a product.
func shop(t *testing.T) *sql.DB {
	t.Helper()
	db, _ := shopWithDSN(t)
	return db
}

func shopWithDSN(t *testing.T) (db *sql.DB, dsn string) {
	t.Helper()
	env := testenv.MySQL(t)
	if _, err := migrations.Up(t.Context(), env.DB); err != nil {
		t.Fatal(err)
	}
	run(t, env.DB,
		"CREATE TABLE products (id INT PRIMARY KEY, price_cents INT NOT NULL)",
		"CREATE TABLE product_categories (product_id INT, category_id INT)",
		"INSERT INTO products VALUES (42, 4990)",
		"INSERT INTO product_categories VALUES (42, 7)")
	return env.DB, env.DSN
}

func run(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// state returns what others see: the product's price and how many rows wait.
func state(t *testing.T, db *sql.DB) (seen string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(),
		"SELECT CONCAT((SELECT price_cents FROM products), ' and ', COUNT(*), ' rows') FROM cache_outbox").Scan(&seen); err != nil {
		t.Fatal(err)
	}
	return seen
}

// Tokens can be made in the transactions of all these libraries.
var _ outbox.QueryTx = (*sqlx.Tx)(nil)

func TestTransactionsMakeTokens(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	for name, prepared := range map[string]bool{"GORM": false, "GORM with prepared statements": true} {
		tx := openGORM(t, env.DB, &gorm.Config{PrepareStmt: prepared}).Begin()
		if _, ok := tx.Statement.ConnPool.(outbox.QueryTx); !ok {
			t.Errorf("%s: a %T is none", name, tx.Statement.ConnPool)
		}
		tx.Rollback()
	}
	driver := entsql.OpenDB(dialect.MySQL, env.DB)
	for name, driver := range map[string]dialect.Driver{"ent": driver, "ent with its debugging driver": dialect.Debug(driver, t.Log)} {
		tx, err := driver.Tx(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := tx.(outbox.QueryTx); !ok {
			t.Errorf("%s: a %T is none", name, tx)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}
