package alter

import (
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/internal/servers"
)

// A Recipe changes the table products, and then another one that captures only updates, coupons: the
// name is replaced.
type Recipe struct {
	Name string
	// Flavor is the only database on which the recipe runs. Empty: both.
	Flavor servers.Kind
	// Before are steps that run before the first write.
	Before []string
	// Steps end with a semicolon if they are SQL. Others are commands for a shell.
	Steps []string
	// Misses: without the invalidation at the end, keys must be stale. Otherwise they may be.
	Misses bool
	// Blocks: writers wait for the whole change.
	Blocks bool
	// Fills: before the steps, readers store keys of rows that no writer changes, and the change does.
	Fills bool
	// Tree is the directory below .servers with the tools. Empty: tools-sid for MySQL, tools-12 for MariaDB.
	Tree string
	// Latency of each request of the tools to the database.
	Latency time.Duration
	// Errors of writes that are expected and repeated, besides 1213.
	Errors []uint16
}

const (
	oldID      = 1_000 // highest ID of the rows that no writer changes
	apply      = "unstale capture apply"
	invalidate = "unstale invalidate --pattern 'shop:product:*' --wait 1m"
	change     = "ADD COLUMN color VARCHAR(20) NOT NULL DEFAULT ''" // $CHANGE of commands
	addColumn  = "ALTER TABLE products " + change
	reprice    = "UPDATE products SET price = price + 1 WHERE id <= 1000;" // after a dump, so that a restore changes the rows
)

// gone are the errors of writes to a table that a restore has dropped.
var gone = []uint16{1146}

// ptOSC gives the definer the privileges for the new table, where the old triggers get their definer
// back, but not the privileges of the old table.
var ptOSC = []string{
	"GRANT CREATE, SELECT, TRIGGER ON shop._products_new TO unstale_capture@localhost;",
	"pt-online-schema-change --preserve-triggers --recursion-method=none --execute --alter=\"$CHANGE\" D=shop,t=products",
	apply, invalidate, "REVOKE ALL ON shop._products_new FROM unstale_capture@localhost;",
}

// Recipes are all recipes, as docs/capture.md prints their steps.
var Recipes = []Recipe{
	{Name: "drop the triggers, change, apply", Misses: true, Steps: []string{
		"unstale capture drop --table products", addColumn + ", ALGORITHM=INPLACE;", apply, invalidate,
	}},
	{Name: "ALTER, copy", Blocks: true, Steps: []string{addColumn + ", ALGORITHM=COPY;", apply}},
	{Name: "ALTER, in place", Steps: []string{addColumn + ", ALGORITHM=INPLACE, LOCK=NONE;", "ALTER TABLE products ADD KEY color (color), ALGORITHM=INPLACE, LOCK=NONE;", apply}},
	{Name: "ALTER, instant", Steps: []string{addColumn + ", ALGORITHM=INSTANT;", apply}},
	{Name: "gh-ost", Flavor: servers.KindMySQL, Steps: []string{
		"gh-ost --include-triggers --trigger-suffix=_gho --allow-on-master --conf=$HOME/.my.cnf --host=$HOST --port=$PORT --database=shop --table=products --execute --alter=\"$CHANGE\"",
		apply, "DROP TABLE _products_del;",
	}},
	{Name: "pt-osc 3.2.1", Tree: "tools-12", Steps: ptOSC},
	{Name: "pt-osc 3.2.1, writes in its gap", Tree: "tools-12", Steps: ptOSC, Misses: true, Latency: 50 * time.Millisecond},
	{Name: "pt-osc 3.7.1", Tree: "tools-sid", Steps: ptOSC},
	{Name: "pt-osc 3.7.1, writes in its gap", Tree: "tools-sid", Steps: ptOSC, Misses: true, Latency: 50 * time.Millisecond},
	{Name: "RENAME TABLE swap", Misses: true, Before: []string{
		"CREATE TABLE products_new LIKE products;", "INSERT INTO products_new SELECT id, price + 1, text FROM products;",
	}, Fills: true, Steps: []string{
		"RENAME TABLE products TO products_old, products_new TO products;", apply, invalidate,
	}},
	{Name: "partition exchange", Misses: true, Before: []string{
		"ALTER TABLE products PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (1001), PARTITION high VALUES LESS THAN MAXVALUE);",
		"CREATE TABLE products_low LIKE products;", "ALTER TABLE products_low REMOVE PARTITIONING;",
		"INSERT INTO products_low SELECT id, price + 1, text FROM products WHERE id <= 1000;",
	}, Fills: true, Steps: []string{
		"ALTER TABLE products EXCHANGE PARTITION low WITH TABLE products_low;", apply, invalidate,
	}},
	{Name: "mysqldump", Flavor: servers.KindMySQL, Misses: true, Before: []string{
		"mysqldump --skip-add-locks --set-gtid-purged=OFF shop products > products.sql", reprice,
	}, Fills: true, Errors: gone, Steps: []string{"mysql shop < products.sql", apply, invalidate}},
	{Name: "mariadb-dump", Flavor: servers.KindMariaDB, Misses: true, Before: []string{
		"mariadb-dump --skip-add-locks shop products > products.sql", reprice,
	}, Fills: true, Errors: gone, Steps: []string{"mariadb shop < products.sql", apply, invalidate}},
	{Name: "mydumper and myloader", Misses: true, Before: []string{
		"mydumper --triggers --database shop --tables-list products --outputdir products", reprice,
	}, Fills: true, Errors: gone, Steps: []string{
		"myloader --overwrite-tables --database shop --directory products", apply, invalidate,
	}},
}

// Find returns the recipes with these names, or all, that run on a database. Empty flavor: MySQL.
func Find(flavor servers.Kind, names ...string) (found []Recipe, err error) {
	if flavor == "" {
		flavor = servers.KindMySQL
	}
	for _, r := range Recipes {
		if (r.Flavor == "" || r.Flavor == flavor) && (len(names) == 0 || slices.Contains(names, r.Name)) {
			found = append(found, r)
		}
	}
	if len(found) < max(len(names), 1) {
		return nil, fmt.Errorf("recipes %q: %d exist for %s", names, len(found), flavor)
	}
	return found, nil
}
