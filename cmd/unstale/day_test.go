package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/draft"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/redisurl"
	"github.com/unstale/unstale/worker"
)

// make test-drafts has longer days.
var (
	dayLength   = flag.Int("day", 5, "transactions with each schema of TestMapDraftSchemas")
	dayTriggers = flag.Int("triggers", 1, "triggers that are dropped, one at a time, until a key is stale")
	daySeed     = flag.Uint64("seed", 1, "of the random statements")
)

// expected are the errors of statements that the schema refuses: a key that exists, a foreign key,
// NULL, a cascade that is too deep, a join that changes a row twice, and a trigger that would read a
// table of a DELETE with a join.
var expected = []uint16{1048, 1062, 1364, 1442, 1451, 1452, 1706, 1761, 1762, 6575}

// A person is what a person adds to a draft.
type person struct {
	joins []string // parts that no foreign key declares, as "child.column = parent.column", and values that show other rows
	edits []string // texts that the draft has once, each with its replacement
}

// parted returns an edit of a draft that makes a table's rows, which have no parts, a part of
// another entity's.
func parted(entity, capture, column, parent string) []string {
	return []string{
		"  " + entity + ":\n", "  " + entity + ":\n    params: [" + column + "]\n    as: { " + parent + ": \"{" + column + "}\" }\n",
		capture + " }", capture + ", params: { " + column + ": " + column + " } }",
	}
}

// shows returns an edit that makes rows of an entity show in the keys of another one.
func shows(entity, in, sql string) []string {
	return []string{"  " + entity + ":\n", fmt.Sprintf("  %s:\n    params: [shown_in]\n    lookups:\n      shown_in: { by: [id], sql: %q }\n    as: { %s: \"{shown_in}\" }\n", entity, sql, in)}
}

var persons = map[string]person{
	// A page shows its revisions, links and redirect.
	"mediawiki": {
		[]string{
			"page_props.pp_page = page.page_id", "page_restrictions.pr_page = page.page_id", "slots.slot_revision_id = revision.rev_id", "user_groups.ug_user = user.user_id",
			"revision.rev_page = page.page_id", "pagelinks.pl_from = page.page_id", "redirect.rd_from = page.page_id",
		},
		slices.Concat(parted("pagelink", "{row}.`pl_target_id`)\"", "pl_from", "page"),
			[]string{"  redirect:\n", "  redirect:\n    as: { page: \"{id}\" }\n"},
			[]string{"  revision:\n", "  revision:\n    params: [rev_page]\n    lookups:\n      rev_page: { by: [id], sql: \"SELECT rev_id, rev_page FROM revision WHERE rev_id IN (?)\" }\n    as: { page: \"{rev_page}\" }\n",
				"id: rev_id }", "id: rev_id, params: { rev_page: rev_page } }"}),
	},
	// A product shows its images, prices, stock and manufacturer.
	"prestashop": {
		[]string{
			"ps_cart_product.id_cart = ps_cart.id_cart", "ps_cart_product.id_product = ps_product.id_product", "ps_category_lang.id_category = ps_category.id_category",
			"ps_category_lang.id_lang = ps_lang.id_lang", "ps_category_product.id_category = ps_category.id_category", "ps_category_product.id_product = ps_product.id_product",
			"ps_product_attribute.id_product = ps_product.id_product", "ps_product_attribute_combination.id_attribute = ps_attribute.id_attribute",
			"ps_product_attribute_combination.id_product_attribute = ps_product_attribute.id_product_attribute", "ps_product_lang.id_product = ps_product.id_product",
			"ps_product_lang.id_lang = ps_lang.id_lang", "ps_product_shop.id_product = ps_product.id_product", "ps_product_shop.id_shop = ps_shop.id_shop",
			"ps_image.id_product = ps_product.id_product", "ps_specific_price.id_product = ps_product.id_product", "ps_stock_available.id_product = ps_product.id_product",
			"ps_manufacturer.id_manufacturer = ps_product.id_manufacturer",
		},
		slices.Concat(parted("image", "id: id_image", "id_product", "product"), parted("specific_price", "id: id_specific_price", "id_product", "product"),
			parted("stock_available", "id: id_stock_available", "id_product", "product"),
			shows("manufacturer", "product", "SELECT id_manufacturer, id_product FROM ps_product WHERE id_manufacturer IN (?)")),
	},
	// A film shows its language and copies, a customer the address.
	"sakila": {
		[]string{"film_text.film_id = film.film_id", "language.language_id = film.language_id", "address.address_id = customer.address_id"},
		slices.Concat(parted("inventory", "watch: [film_id, store_id]", "film_id", "film"),
			shows("language", "film", "SELECT language_id, film_id FROM film WHERE language_id IN (?)"),
			shows("address", "customer", "SELECT address_id, customer_id FROM customer WHERE address_id IN (?)")),
	},
	// A product shows its tax and manufacturer.
	"shopware": {
		[]string{"tax.id = product.tax_id", "product_manufacturer.id = product.product_manufacturer_id"},
		slices.Concat(shows("tax", "product", "SELECT LOWER(HEX(tax_id)), LOWER(HEX(id)) FROM product WHERE tax_id IN (UNHEX(?))"),
			shows("product_manufacturer", "product", "SELECT LOWER(HEX(product_manufacturer_id)), LOWER(HEX(id)) FROM product WHERE product_manufacturer_id IN (UNHEX(?))")),
	},
	// A product shows its main taxon, a channel its currency.
	"sylius": {
		[]string{"sylius_taxon.id = sylius_product.main_taxon_id", "sylius_currency.id = sylius_channel.base_currency_id"},
		slices.Concat(shows("taxon", "product", "SELECT main_taxon_id, id FROM sylius_product WHERE main_taxon_id IN (?)"),
			shows("currency", "channel", "SELECT base_currency_id, id FROM sylius_channel WHERE base_currency_id IN (?)")),
	},
	// A post shows its comments and terms.
	"wordpress": {
		[]string{
			"wp_commentmeta.comment_id = wp_comments.comment_ID", "wp_postmeta.post_id = wp_posts.ID", "wp_term_relationships.term_taxonomy_id = wp_term_taxonomy.term_taxonomy_id",
			"wp_term_taxonomy.term_id = wp_terms.term_id", "wp_termmeta.term_id = wp_terms.term_id", "wp_usermeta.user_id = wp_users.ID", "wp_wc_order_stats.order_id = wp_wc_orders.id",
			"wp_woocommerce_order_itemmeta.order_item_id = wp_woocommerce_order_items.order_item_id",
			"wp_comments.comment_post_ID = wp_posts.ID", "wp_term_relationships.object_id = wp_posts.ID",
		},
		[]string{
			"  comment:\n", "  comment:\n    params: [on_post]\n    lookups:\n      on_post: { by: [id], sql: \"SELECT comment_ID, comment_post_ID FROM wp_comments WHERE comment_ID IN (?)\" }\n    as: { post: \"{on_post}\" }\n",
			"id: comment_ID }", "id: comment_ID, params: { on_post: comment_post_ID } }",
			"params: [term_taxonomy_id]\n    as: {", "params: [term_taxonomy_id, object_id]\n    as: { post: \"{object_id}\",",
			"params: { term_taxonomy_id: term_taxonomy_id }", "params: { term_taxonomy_id: term_taxonomy_id, object_id: object_id }",
		},
	},
}

// A day writes to a database, and compares what is cached with the tables.
type day struct {
	t      *testing.T
	db     *sql.DB
	dice   *rand.Rand
	tables []*dayTable
	joins  []*join
	shown  map[*dayTable][]*join // of rows that show in values of a table
	wake   string                // the channel that wakes the worker
	cache  *redis.Client
	cached map[string]string // what Redis has, by key
	now    map[*dayTable][]dayRow
	only   *dayTable // of most statements, or nil

	statements, refused, checked, changed, needless int
	stale                                           []string
}

// A dayRow has texts by column. A column that is NULL is missing.
type dayRow map[string]string

type dayTable struct {
	name, entity string
	columns      []dayColumn // those of the primary key first
	key          []string
}

type dayColumn struct {
	name, kind                           string
	length                               int
	nullable, generated, unique, watched bool
}

// A join makes a row of a table show in the values of the rows of another one that have the same
// values.
type join struct {
	from, to               *dayTable
	fromColumns, toColumns []string
}

func (d *day) table(name string) *dayTable {
	d.t.Helper()
	for _, t := range d.tables {
		if t.name == name {
			return t
		}
	}
	d.t.Fatalf("no table %q", name)
	return nil
}

// query calls fn with the values of each row.
func (d *day) query(query string, fn func(values []sql.NullString)) {
	d.t.Helper()
	rows, err := d.db.QueryContext(d.t.Context(), query)
	if err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		d.t.Fatal(err)
	}
	values, to := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		to[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			d.t.Fatal(err)
		}
		fn(values)
	}
	if err := rows.Err(); err != nil {
		d.t.Fatal(err)
	}
}

// readSchema reads the tables and the foreign keys from the dictionary.
func (d *day) readSchema(reports []draft.TableReport, joins []string) {
	d.t.Helper()
	d.query(`SELECT c.table_name, c.column_name, LOWER(c.data_type), COALESCE(LEAST(c.character_maximum_length, 16), 0), c.is_nullable = 'YES', c.extra, c.column_key IN ('PRI', 'UNI'), s.seq_in_index
FROM information_schema.columns AS c JOIN information_schema.tables AS t USING (table_schema, table_name)
LEFT JOIN information_schema.statistics AS s ON s.table_schema = c.table_schema AND s.table_name = c.table_name AND s.column_name = c.column_name AND s.index_name = 'PRIMARY'
WHERE c.table_schema = DATABASE() AND t.engine = 'InnoDB'
ORDER BY c.table_name, s.seq_in_index IS NULL, s.seq_in_index, c.ordinal_position`, func(v []sql.NullString) {
		i := slices.IndexFunc(reports, func(r draft.TableReport) bool { return r.Table == v[0].String })
		if i < 0 {
			return // one of unstale
		}
		if n := len(d.tables); n == 0 || d.tables[n-1].name != v[0].String {
			d.tables = append(d.tables, &dayTable{name: v[0].String, entity: reports[i].Entity})
		}
		t, extra := d.tables[len(d.tables)-1], strings.ToUpper(v[5].String)
		c := dayColumn{name: v[1].String, kind: v[2].String, nullable: v[4].String == "1", unique: v[6].String == "1", watched: !slices.Contains(reports[i].Left, v[1].String),
			generated: strings.Contains(extra, "GENERATED") && !strings.Contains(extra, "DEFAULT_GENERATED")}
		_, _ = fmt.Sscan(v[3].String, &c.length)
		if v[7].Valid {
			t.key = append(t.key, c.name)
		}
		t.columns = append(t.columns, c)
	})
	last := ""
	d.query(`SELECT constraint_name, table_name, column_name, referenced_table_name, referenced_column_name FROM information_schema.key_column_usage
WHERE table_schema = DATABASE() AND referenced_table_name IS NOT NULL ORDER BY table_name, constraint_name, ordinal_position`, func(v []sql.NullString) {
		if name := v[1].String + " " + v[0].String; name != last {
			last = name
			d.joins = append(d.joins, &join{from: d.table(v[1].String), to: d.table(v[3].String)})
		}
		j := d.joins[len(d.joins)-1]
		j.fromColumns, j.toColumns = append(j.fromColumns, v[2].String), append(j.toColumns, v[4].String)
	})
	for _, text := range joins {
		names := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(". =", r) })
		d.joins = append(d.joins, &join{d.table(names[0]), d.table(names[2]), names[1:2], names[3:4]})
	}
}

// readMap finds the joins that the map promises to follow.
func (d *day) readMap(m *invalidation.Map) {
	d.t.Helper()
	for _, t := range d.tables {
		described, _ := m.Describe(t.entity)
		for _, as := range described.As {
			found := false
			for _, j := range d.joins {
				if j.from == t && j.to.entity == as.Entity {
					found = true
					d.shown[j.to] = append(d.shown[j.to], j)
				}
			}
			if !found {
				d.t.Errorf("no join makes %s a part of %s", t.entity, as.Entity)
			}
		}
	}
}

// refers returns the side of a join that has a column for the key of the other side.
func (j *join) refers() (child *dayTable, columns []string, parent *dayTable, references []string) {
	if slices.Equal(j.toColumns, j.to.key) {
		return j.from, j.fromColumns, j.to, j.toColumns
	}
	return j.to, j.toColumns, j.from, j.fromColumns
}

func (c dayColumn) isBinary() bool {
	return strings.HasSuffix(c.kind, "binary") || strings.HasSuffix(c.kind, "blob")
}

// literal returns the nth value of a column, in SQL.
func (c dayColumn) literal(n int) string {
	switch c.kind {
	case "char", "varchar", "tinytext", "text", "mediumtext":
		return fmt.Sprintf("'w%c'", 'a'+n%26)
	case "longtext", "json": // a JSON of MariaDB is a LONGTEXT
		return fmt.Sprintf("'%d'", n)
	case "binary":
		return fmt.Sprintf("X'%s'", strings.Repeat(fmt.Sprintf("%02x", n), c.length))
	case "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return fmt.Sprintf("X'77%02x'", n)
	case "date", "datetime", "timestamp":
		return fmt.Sprintf("'2026-01-%02d'", 1+n%28)
	case "geometry":
		return fmt.Sprintf("ST_GeomFromText('POINT(%d 1)')", n)
	case "year":
		return fmt.Sprint(2000 + n)
	case "enum", "set":
		return fmt.Sprint(1 + n%2)
	}
	return fmt.Sprint(n)
}

// of returns a value of a row, in SQL.
func (c dayColumn) of(row dayRow) string {
	text, ok := row[c.name]
	switch {
	case !ok:
		return "NULL"
	case c.isBinary():
		return fmt.Sprintf("X'%x'", text)
	}
	return "'" + text + "'"
}

func (t *dayTable) column(name string) dayColumn {
	return t.columns[slices.IndexFunc(t.columns, func(c dayColumn) bool { return strings.EqualFold(c.name, name) })]
}

// seed inserts rows that refer to each other.
func (d *day) seed() {
	statements := []string{"SET FOREIGN_KEY_CHECKS = 0"}
	for _, t := range d.tables {
		for n := 1; n <= 8; n++ {
			values := map[string]string{}
			for _, c := range t.columns {
				values[c.name] = c.literal(n)
			}
			for _, j := range d.joins {
				child, columns, parent, references := j.refers()
				other := 1 + d.dice.IntN(8)
				for i, name := range columns {
					if child == t && (!t.column(name).unique || len(t.key) > 1) {
						values[name] = parent.column(references[i]).literal(other)
					}
				}
			}
			statements = append(statements, "INSERT IGNORE "+t.into([]map[string]string{values}))
		}
	}
	execAll(d.t, d.db, append(statements, "SET FOREIGN_KEY_CHECKS = 1")...)
}

func (t *dayTable) into(rows []map[string]string) string {
	var columns, all []string
	for _, c := range t.columns {
		if !c.generated {
			columns = append(columns, capture.QuoteName(c.name))
		}
	}
	for _, row := range rows {
		var values []string
		for _, c := range t.columns {
			if !c.generated {
				values = append(values, row[c.name])
			}
		}
		all = append(all, "("+strings.Join(values, ", ")+")")
	}
	return "INTO " + capture.QuoteName(t.name) + " (" + strings.Join(columns, ", ") + ") VALUES " + strings.Join(all, ", ")
}

// chance reports true in so many of a hundred cases.
func (d *day) chance(percent int) bool { return d.dice.IntN(100) < percent }

func pick[T any](dice *rand.Rand, of []T) T { return of[dice.IntN(len(of))] }

// row returns random values in SQL. References are to rows that exist.
func (d *day) row(t *dayTable) map[string]string {
	values := map[string]string{}
	for _, c := range t.columns {
		n := 1 + d.dice.IntN(9)
		if c.unique {
			n = 1 + d.dice.IntN(24)
		}
		switch values[c.name] = c.literal(n); {
		case c.nullable && d.chance(12):
			values[c.name] = "NULL"
		case strings.HasPrefix(values[c.name], "'w") && d.chance(12): // the same for many collations
			values[c.name] = strings.ToUpper(values[c.name])
		}
	}
	for _, j := range d.joins {
		child, columns, parent, references := j.refers()
		if child != t || len(d.now[parent]) == 0 {
			continue
		}
		from, leave := pick(d.dice, d.now[parent]), d.chance(10)
		for i, name := range columns {
			c := t.column(name)
			switch {
			case leave && c.nullable:
				values[c.name] = "NULL"
			case !leave:
				values[c.name] = parent.column(references[i]).of(from)
			}
		}
	}
	return values
}

// set returns assignments to some columns.
func (d *day) set(t *dayTable, as string) string {
	row, columns := d.row(t), map[string]bool{}
	for range 1 + d.dice.IntN(3) {
		c := pick(d.dice, t.columns)
		if d.chance(20) { // its key, whose changes cascade
			c = t.columns[0]
		}
		columns[c.name] = true
		for _, j := range d.joins {
			if child, names, _, _ := j.refers(); child == t && slices.Contains(names, c.name) {
				for _, name := range names {
					columns[t.column(name).name] = true
				}
			}
		}
	}
	var all []string
	for _, c := range t.columns {
		if columns[c.name] && !c.generated {
			all = append(all, as+capture.QuoteName(c.name)+" = "+row[c.name])
		}
	}
	if len(all) == 0 {
		return as + capture.QuoteName(t.columns[0].name) + " = " + row[t.columns[0].name]
	}
	return strings.Join(all, ", ")
}

// where returns a condition for some rows.
func (d *day) where(t *dayTable, as string) string {
	if len(d.now[t]) == 0 {
		return " WHERE TRUE"
	}
	row := pick(d.dice, d.now[t])
	var all []string
	for _, name := range t.key {
		all = append(all, as+capture.QuoteName(name)+" = "+t.column(name).of(row))
	}
	if c := pick(d.dice, t.columns[:max(1, len(t.key))]); len(all) == 0 || d.chance(30) {
		all = []string{as + capture.QuoteName(c.name) + pick(d.dice, []string{" = ", " >= "}) + c.of(row)}
	}
	return " WHERE " + strings.Join(all, " AND ")
}

// statement returns a random statement: half of them are updates.
func (d *day) statement() string {
	t := pick(d.dice, d.tables)
	if d.only != nil && d.chance(70) {
		t = d.only
	}
	name, some, ignore := capture.QuoteName(t.name), "", ""
	if d.chance(30) {
		some = fmt.Sprintf(" ORDER BY %s LIMIT %d", capture.QuoteName(t.columns[0].name), 1+d.dice.IntN(3))
	}
	if d.chance(8) {
		ignore = "IGNORE "
	}
	var rows []map[string]string
	for range pick(d.dice, []int{1, 1, 2, 3}) {
		rows = append(rows, d.row(t))
	}
	j := pick(d.dice, append(d.joins, &join{from: t, to: t, fromColumns: []string{t.columns[0].name}, toColumns: []string{t.columns[0].name}}))
	var on []string
	for i, column := range j.fromColumns {
		on = append(on, "x."+capture.QuoteName(column)+" = y."+capture.QuoteName(j.toColumns[i]))
	}
	joined := capture.QuoteName(j.from.name) + " AS x JOIN " + capture.QuoteName(j.to.name) + " AS y ON " + strings.Join(on, " AND ")
	switch n := d.dice.IntN(100); {
	case len(d.now[t]) < 4 && n < 80, n >= 50 && n < 62 && len(d.now[t]) < 15:
		return "INSERT " + ignore + t.into(rows)
	case n < 42:
		return "UPDATE " + ignore + name + " SET " + d.set(t, "") + d.where(t, "") + some
	case n < 50:
		return "UPDATE " + ignore + joined + " SET " + d.set(j.from, "x.") + ", " + d.set(j.to, "y.") + d.where(j.from, "x.")
	case n < 72:
		return "INSERT " + t.into(rows[:1]) + " ON DUPLICATE KEY UPDATE " + d.set(t, "")
	case n < 82:
		return "REPLACE " + t.into(rows)
	case n < 97:
		return "DELETE FROM " + name + d.where(t, "") + some
	}
	return "DELETE x, y FROM " + joined + d.where(j.from, "x.")
}

// transaction runs statements.
func (d *day) transaction() (statements []string) {
	d.t.Helper()
	tx, err := d.db.BeginTx(d.t.Context(), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for range 1 + d.dice.IntN(4) {
		text := d.statement()
		d.statements++
		_, err := tx.ExecContext(d.t.Context(), text)
		if err != nil {
			if !slices.Contains(expected, uint16(mysqlerr.Number(err))) || strings.Contains(err.Error(), "entity_id") {
				d.t.Errorf("%s: %v", text, err)
			}
			d.refused++
			text += " -- " + err.Error()
		}
		statements = append(statements, text)
	}
	if d.chance(8) {
		return append(statements, "ROLLBACK")
	}
	if err := tx.Commit(); err != nil {
		d.t.Fatal(err)
	}
	return statements
}

// read reads the tables.
func (d *day) read() {
	d.t.Helper()
	d.now = map[*dayTable][]dayRow{}
	for _, t := range d.tables {
		var names []string
		for _, c := range t.columns {
			names = append(names, capture.QuoteName(c.name))
		}
		d.query("SELECT "+strings.Join(names, ", ")+" FROM "+capture.QuoteName(t.name), func(values []sql.NullString) {
			row := dayRow{}
			for i, c := range t.columns {
				if values[i].Valid {
					row[c.name] = values[i].String
				}
			}
			d.now[t] = append(d.now[t], row)
		})
	}
}

// textOf returns the values of columns, and reports whether none is NULL.
func (t *dayTable) textOf(row dayRow, columns []string) (text string, ok bool) {
	var all []string
	for _, name := range columns {
		c := t.column(name)
		value, ok := row[c.name]
		if !ok {
			return "", false
		}
		if c.isBinary() {
			value = fmt.Sprintf("%x", value)
		}
		all = append(all, value)
	}
	return strings.Join(all, ":"), true
}

// contents returns what each key shows: a hash of its row and of all rows that show in it.
func (d *day) contents() map[string]string {
	all, parts := map[string]string{}, map[*join]map[string][]dayRow{}
	for _, j := range d.joins {
		parts[j] = map[string][]dayRow{}
		for _, row := range d.now[j.from] {
			if value, ok := j.from.textOf(row, j.fromColumns); ok {
				parts[j][value] = append(parts[j][value], row)
			}
		}
	}
	var of func(t *dayTable, row dayRow) string
	of = func(t *dayTable, row dayRow) string {
		var text []string
		for _, c := range t.columns {
			if value, ok := row[c.name]; c.watched {
				text = append(text, fmt.Sprintf("%q %v", value, ok))
			}
		}
		for _, j := range d.shown[t] {
			var rows []string
			if value, ok := t.textOf(row, j.toColumns); ok {
				for _, part := range parts[j][value] {
					rows = append(rows, of(j.from, part))
				}
			}
			slices.Sort(rows)
			text = append(text, fmt.Sprint(rows))
		}
		return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(text, "\n"))))[:16]
	}
	for _, t := range d.tables {
		for _, row := range d.now[t] {
			if id, ok := t.textOf(row, t.key); ok && t.entity != "" {
				all["shop:"+t.entity+":"+id] = of(t, row)
			}
		}
	}
	return all
}

// step writes once, lets the worker process the rows, and compares each key that is still cached
// with the tables.
func (d *day) step() {
	d.t.Helper()
	statements := d.transaction()
	if d.chance(30) { // lookups of the first one find what the second one left
		statements = append(append(statements, "COMMIT"), d.transaction()...)
	}
	d.read()
	err := d.cache.Publish(d.t.Context(), d.wake, "").Err()
	if err != nil {
		d.t.Fatal(err)
	}
	testenv.Eventually(d.t, "the outbox is empty", func() (empty bool) {
		d.query("SELECT NOT EXISTS (SELECT 1 FROM cache_outbox) AND NOT EXISTS (SELECT 1 FROM cache_outbox_delayed)", func(v []sql.NullString) { empty = v[0].String == "1" })
		return empty
	})
	now, keys := d.contents(), slices.Sorted(maps.Keys(d.cached))
	values, err := d.cache.MGet(d.t.Context(), keys...).Result()
	if err != nil {
		d.t.Fatal(err)
	}
	for i, key := range keys {
		is := now[key]
		if is == "" {
			is = "none"
		}
		d.checked++
		switch same := d.cached[key] == is; {
		case values[i] != nil && !same:
			d.stale = append(d.stale, fmt.Sprintf("%s is stale after %q", key, statements))
		case values[i] == nil && same:
			d.needless++
		case !same:
			d.changed++
		}
		now[key] = is
	}
	d.fill(now)
}

// fill caches what the keys show.
func (d *day) fill(contents map[string]string) {
	d.t.Helper()
	pairs := map[string]any{}
	for key, text := range contents {
		pairs[key] = text
	}
	d.cached = contents
	if err := d.cache.MSet(d.t.Context(), pairs).Err(); err != nil {
		d.t.Fatal(err)
	}
}

// changedLines returns how many lines differ between two texts.
func changedLines(before, after string) int {
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[line]--
	}
	for line := range strings.Lines(after) {
		count[line]++
	}
	added, removed := 0, 0
	for _, n := range count {
		added, removed = added+max(n, 0), removed+max(-n, 0)
	}
	return max(added, removed)
}

// proveDay edits a draft as a person does, and writes to all tables. No key is stale then, unless a
// trigger is dropped.
func proveDay(t *testing.T, env *testenv.Database, schema, file string) {
	t.Helper()
	vars, server := map[string]string{"MYSQL_DSN": env.DSN}, testenv.Redis(t)
	began := time.Now()
	r := call(t, vars, "map", "draft", "--app", "shop", "--json")
	took := time.Since(began)
	var drafted draftObject
	if err := json.Unmarshal([]byte(r.out), &drafted); err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edited := string(text)
	for edit := range slices.Chunk(persons[schema].edits, 2) {
		if strings.Count(edited, edit[0]) != 1 {
			t.Fatalf("the draft has not one %q:\n%s", edit[0], edited)
		}
		edited = strings.Replace(edited, edit[0], edit[1], 1)
	}
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	apply := func() {
		if r := call(t, vars, "capture", "apply", "--map", file); r.code != exitDone {
			t.Fatalf("%+v\n%s", r, edited)
		}
	}
	apply()
	m, err := invalidation.Parse(file, []byte(edited), nil)
	if err != nil {
		t.Fatal(err)
	}
	dsn, err := mysql.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	redisAt, err := redisurl.Parse(server.URL, false)
	if err != nil {
		t.Fatal(err)
	}
	d := &day{t: t, db: env.DB, dice: rand.New(rand.NewPCG(*daySeed, 0)), cache: server.Client, wake: server.Channel("wake"), shown: map[*dayTable][]*join{}}
	w, err := worker.New(worker.Config{
		MySQL: dsn, Redis: redisAt, Map: m, Logger: slog.New(slog.DiscardHandler), LookupTimeout: 2 * time.Second, RedisTimeout: 5 * time.Second, SpotChecks: -1, WakeChannel: d.wake,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.readSchema(drafted.Tables, persons[schema].joins)
	d.readMap(m)
	d.seed()
	execAll(t, env.DB, "DELETE FROM cache_outbox")
	d.read()
	d.fill(d.contents())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for range *dayLength {
		d.step()
	}
	for _, text := range d.stale[:min(len(d.stale), 5)] {
		t.Error(text)
	}
	covered, refused := 0, []string{}
	for _, one := range drafted.Tables {
		if one.Captured {
			covered++
		}
		if one.Reason != "" {
			refused = append(refused, one.Table+" ("+one.Reason+")")
		}
	}
	lines, changed := strings.Count(string(text), "\n"), changedLines(string(text), edited)
	if changed*10 > lines {
		t.Errorf("a person changed %d of %d lines", changed, lines)
	}
	t.Logf("%s on %s %s: %d tables, %d covered, not %v; drafted in %s; %d of %d lines changed; %d statements, of which the schema refused %d; %d keys checked, %d of them changed, %d unlinked without a change, %d stale",
		schema, env.Flavor, env.Version, len(drafted.Tables), covered, refused, took.Round(time.Millisecond), changed, lines, d.statements, d.refused, d.checked, d.changed, d.needless, len(d.stale))
	d.proveOracle(apply)
	d.query("SELECT entity, entity_id, reason FROM cache_outbox_dead", func(v []sql.NullString) { t.Errorf("a dead letter: %v", v) })
}

// proveOracle drops triggers one at a time, and expects that a key becomes stale each time.
func (d *day) proveOracle(apply func()) {
	d.t.Helper()
	var triggers [][]string
	d.query("SELECT trigger_name, event_object_table, action_timing, event_manipulation FROM information_schema.triggers WHERE trigger_schema = DATABASE() ORDER BY 2, 3, 4", func(v []sql.NullString) {
		triggers = append(triggers, []string{v[0].String, v[1].String, v[2].String + " " + v[3].String + " on " + v[1].String})
	})
	d.dice.Shuffle(len(triggers), func(i, k int) { triggers[i], triggers[k] = triggers[k], triggers[i] })
	triggers = triggers[:min(*dayTriggers, len(triggers))]
	for _, trigger := range triggers {
		execAll(d.t, d.db, "DROP TRIGGER "+capture.QuoteName(trigger[0]))
		d.stale, d.only = nil, d.table(trigger[1])
		for n := 0; n < 200 && len(d.stale) == 0; n++ {
			d.step()
		}
		if len(d.stale) == 0 {
			d.t.Errorf("no key is stale without the trigger %s", trigger[2])
		}
		apply()
	}
	d.t.Logf("%d triggers were dropped, one at a time", len(triggers))
}
