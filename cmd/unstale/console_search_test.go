package main

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/console"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/redisurl"
)

// find searches, and returns the page after unescaping.
func (b *browser) find(as, text string) string {
	b.t.Helper()
	code, page := b.get("/search?" + url.Values{"as": {as}, "q": {text}, "wait": {"1"}}.Encode())
	if code != http.StatusOK {
		b.t.Fatalf("%q: %d %s", text, code, page)
	}
	return html.UnescapeString(page)
}

// finds waits until a search has all parts.
func (b *browser) finds(as, text string, parts ...string) {
	b.t.Helper()
	page := ""
	defer func() {
		if b.t.Failed() {
			b.t.Log(page)
		}
	}()
	testenv.Eventually(b.t, fmt.Sprintf("the search for %q has %q", text, parts), func() bool {
		page = b.find(as, text)
		for _, part := range parts {
			if !strings.Contains(page, part) {
				return false
			}
		}
		return true
	})
}

// A search shows whether a key is stale and why, from the rows that wait, the journal, the map and
// Redis.
func TestConsoleSearch(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	j.writeMap("version: 1\nentities:\n  thing: {keys: [\"shop:thing:{id}\"], patterns: [\"shop:things:{id}:*\"]}\n  later: {keys: [\"shop:later:{id}\"], repeat: [10m]}\n")
	_, b := j.withConsole("--worker", "web-1")
	b.has("workers", "web-1")
	reader := j.reader("web-9")
	load := func(key string) {
		t.Helper()
		if _, err := cache.Fetch(t.Context(), reader, key, func(context.Context) (string, error) { return "value", nil }, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.finds("", "shop:thing:1", "Not stale: Redis does not hold this key. The journal has no invalidation of it", `thing <code class="data">1</code>`, "key shop:thing:{id}")
	j.exec("INSERT INTO cache_outbox (entity, entity_id, trace) VALUES ('thing', '1', 'request-1')")
	b.finds("", "shop:thing:1", "Not stale: Redis does not hold this key. It was last unlinked ", "for row 1 (thing 1)", "→ published +", "to 1 receiver", "reported as evicted by web-9")
	load("shop:thing:1")
	b.finds("", "shop:thing:1", "Not stale: it was loaded ", ", after it was last invalidated. It was last unlinked ", "(lease time)", "It expires in ")
	b.finds("", "thing 1", "Not stale by its rows: the keys of all were unlinked, the last ", "for row 1 (thing 1). None waits.", `<code class="data">shop:things:1:*</code>`)
	b.finds("", "request-1", "Not stale by its rows", "Searched for as a trace", `<code class="data">shop:thing:1</code>`)
	for _, text := range []string{"1", "row 1", "Row 1"} {
		b.finds("", text, "Not stale by its rows", "Searched for as the ID of a row")
	}
	b.finds("row", "row 1", "Not stale by its rows")
	b.finds("trace", "row 1", "Nothing is known of such a row")
	b.finds("key", "shop:things:1:x", "Not stale: Redis does not hold this key. It was last unlinked ", "pattern shop:things:{id}:*")

	j.redisDo("SET shop:thing:2 text")
	b.finds("", "shop:thing:2", "No row has named this key since the journal begins (which begins ", "the write has inserted no row", "It does not expire: it stays until it is invalidated.")
	j.redisDo("SET other text PX 100000")
	b.finds("key", "other", "Nothing invalidates this key: no entity of the map reaches it")
	j.redisDo("SET shop:thing:1 text")
	b.finds("key", "shop:thing:1", "Unknown: it is not an entry of package cache")
	j.redisDo(fmt.Sprintf(`SET shop:thing:1 {"b":%d,"v":1}`, time.Now().Add(-time.Hour).UnixMicro()))
	b.finds("key", "shop:thing:1", "Stale: it was loaded 60 min ago, before it was last invalidated.")
	j.redisDo("SET lock:hold:{shop:thing:1} 1 PX 100000")
	b.finds("key", "shop:thing:1", "no reader may store it (tombstone)")

	j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('later', '1')")
	b.finds("key", "shop:later:1", "Delayed row 1 (later 1) is due in ", "Not stale: Redis does not hold this key. It was last unlinked", `<span class="tag">scheduled 1</span>`)
	b.finds("row", "2", "Not stale by its rows", "The row is processed again in ") // its repeat is not due
	j.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6), created_at = created_at - INTERVAL 20 MINUTE",
		"INSERT INTO cache_outbox_delayed (entity, entity_id, created_at, due_at) VALUES ('thing', 'once', UTC_TIMESTAMP(6) - INTERVAL 5 HOUR, UTC_TIMESTAMP(6))")
	b.finds("key", "shop:later:1", "claimed +20 min (or a repeat)")
	b.finds("object", "thing once", "Not stale by its rows", "scheduled row", "claimed <time")
	if page := b.find("object", "thing once"); strings.Contains(page, "+5 h") {
		t.Error(page)
	}
	b.has("recent", `once</code></a></td>`, `<span class="dim">scheduled</span></td>`, `20 min <span class="dim">or a repeat</span>`)
	j.pauses("--reason", "test", "--until-resumed")
	j.exec("INSERT INTO cache_outbox (entity, entity_id) VALUES ('thing', '2')")
	b.finds("key", "shop:thing:2", "May be stale: row 3 (thing 2) waits in cache_outbox for ", "and has not unlinked it yet.")
	b.finds("object", "thing 2", "Its keys may be stale: row 3 (thing 2) waits in cache_outbox")
	b.finds("row", "3", "Its keys may be stale: row 3 is in cache_outbox.")
	b.finds("trace", "none", "Nothing is known of such a row: none waits, and the journal (which begins ")
	j.must(call(t, j.env, "resume"))
	b.finds("key", "shop:thing:2", "Not stale: Redis does not hold this key. It was last unlinked ")

	_, page := b.get("/search?" + url.Values{"entity": {"thing"}, "id": {"7"}, "params": {`{"x": 1}`}}.Encode())
	if page = html.UnescapeString(page); !strings.Contains(page, ">shop:thing:7</code>") || !strings.Contains(page, "The map does not declare x.") {
		t.Error(page)
	}
	_, page = b.get("/search?" + url.Values{"entity": {"thin"}, "id": {"7"}}.Encode())
	if page = html.UnescapeString(page); !strings.Contains(page, "the map has no entity thin; did you mean \"thing\"?") {
		t.Error(page)
	}
}

const proofMap = `version: 1
lease: 1m
params:
  shelf: {lookup: {by: [id], sql: "SELECT id, shelf FROM shelves WHERE id IN (?)"}}
entities:
  product: {keys: ["shop:product:{id}"], patterns: ["shop:lists:{id}:*"]}
  variant: {params: [product_id], as: {product: "{product_id}"}}
  list: {patterns: ["shop:lists:{id}:*"]}
  price: {patterns: ["shop:prod*:{id}"]}
  part: {params: [n], keys: ["shop:part:{id}:{n}"]}
  box: {params: [shelf], keys: ["shop:product:{shelf}"]}
  coupon: {keys: ["shop:coupon:{id}"], sets: ["members:coupon:{id}"]}
reads:
  product: {key: "shop:product:{product_id}", ttl: 1h}
  part: {key: "shop:part:{part_id}:{n}", ttl: 1h}
`

// The search says that a key is not stale only if that is certain.
func TestConsoleSearchProof(t *testing.T) {
	t.Parallel()
	j := &judged{world: newWorld(t)}
	j.writeMap(proofMap)
	_, b := j.withConsole("--worker", "web-1")
	b.has("workers", "web-1")
	const key, green = "shop:product:42", "Not stale: it was loaded "
	store := func(key string, age time.Duration) {
		t.Helper()
		j.redisDo(fmt.Sprintf(`SET %s {"b":%d,"v":1}`, key, time.Now().Add(-age).UnixMicro()))
	}
	insert := func(entity, id, params string) {
		t.Helper()
		j.exec(fmt.Sprintf("INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('%s', '%s', %s)", entity, id, params))
	}
	dies := func(entity, id, params string) {
		t.Helper()
		j.exec(fmt.Sprintf("INSERT INTO cache_outbox_dead (entity, entity_id, params, created_at, first_id, reason, error, map_version) VALUES ('%s', '%s', %s, NOW(6), 0, 'redis_refused', '', '')", entity, id, params))
	}
	gone := func() { t.Helper(); j.exec("DELETE FROM cache_outbox", "DELETE FROM cache_outbox_dead") }
	insert("product", "42", "NULL")
	insert("part", "a", `'{"n":"c"}'`)
	b.finds("key", key, "Not stale: Redis does not hold this key. It was last unlinked ", "for row 1 (product 42)")
	b.finds("object", "part a", "Not stale by its rows")
	b.finds("object", "product 42", "Its keys may be stale: a sweep of shop:lists:42:* was requested ")
	store(key, 0)
	store("shop:part:a:c", 0)
	b.finds("key", key, green)
	b.finds("key", "shop:part:a:c", green)
	insert("list", "7", "NULL")
	b.finds("key", "shop:lists:7:1", "Not stale: Redis does not hold this key.", "for sweep ")
	store("shop:lists:7:1", 0)
	b.finds("key", "shop:lists:7:1", green)
	store("shop:lists:7:1", time.Hour)
	b.finds("key", "shop:lists:7:1", "May be stale: a sweep of shop:lists:7:* was requested ")

	j.pauses("--reason", "test", "--until-resumed")
	j.exec("DELETE FROM cache_outbox_sweeps")
	b.finds("key", "shop:lists:7:1", "May be stale: it was loaded 60 min ago, before sweep ", " was done.")
	b.finds("object", "product 42", "Not stale by its rows")
	const not = " and has not unlinked it yet."
	for _, row := range []struct{ entity, id, params, says string }{
		{"variant", "4301", `'{"product_id":[42]}'`, not},
		{"price", "42", "NULL", not},
		{"unstale/key", key, "NULL", not},
		{"unstale/pattern", "shop:pro*", "NULL", not},
		{"box", "7", "NULL", " and may reach this key: which keys it has depends on lookups"},
		{"gadget", "7", "NULL", " and may reach this key: the map has no such entity."},
		{"variant", "", "NULL", " and may reach this key: which keys it has depends on lookups, or the map refuses it."},
	} {
		insert(row.entity, row.id, row.params)
		name := "(" + row.entity + " " + row.id
		b.finds("key", key, "May be stale: row ", name+") waits in cache_outbox for ", row.says)
		gone()
		dies(row.entity, row.id, row.params)
		b.finds("key", key, "May be stale: dead letter ", name+", redis_refused) waits for an operator", row.says)
		gone()
	}
	insert("part", "a", `'{"n":"b"}'`)
	insert("part", "a", "NULL")
	b.finds("key", "shop:part:a:c", "May be stale: row ", "depends on lookups, or the map refuses it")
	j.exec("DELETE FROM cache_outbox WHERE params IS NULL")
	insert("variant", "4301", `'{"product_id":[43]}'`)
	insert("unstale/key", "shop:product:43", "NULL")
	insert("box", "7", `'{"shelf":41}'`)
	b.finds("key", "shop:part:a:c", green)
	if page := b.find("key", key); !strings.Contains(page, green) || strings.Contains(page, "waits in cache_outbox") {
		t.Error(page)
	}
	gone()

	j.exec("INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) SELECT 'product', '42', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR FROM information_schema.columns LIMIT 25")
	b.finds("key", key, green, "is due in ", "Other rows wait: 5.")
	b.finds("object", "product 42", "Not stale by its rows")
	dies("product", "42", "NULL")
	b.finds("key", key, "May be stale: dead letter ")
	b.finds("object", "product 42", "Its keys may be stale: dead letter ")
	gone()
	j.exec("UPDATE cache_outbox_delayed SET due_at = UTC_TIMESTAMP(6) LIMIT 1")
	b.finds("key", key, "May be stale: delayed row ", "(product 42) is due")
	j.exec("DELETE FROM cache_outbox_delayed")
	b.finds("key", key, green)

	j.exec("INSERT INTO cache_outbox_sweeps (kind, name, attempts, error) VALUES ('pattern', 'shop:pro*', 2, 'NOPERM')")
	b.finds("key", key, "May be stale: a sweep of shop:pro* was requested ", "has failed (NOPERM)")
	store(key, 0)
	b.finds("key", key, green) // it is newer than the change
	j.exec("DELETE FROM cache_outbox_sweeps")

	j.redisDo("SET other 1")
	b.finds("key", "other", "Unknown: no entity of the map names this key, but it may belong to an index set or a tag of the map.")
	insert("coupon", "7", "NULL")
	b.finds("key", "other", "May be stale: row ", "(coupon 7)", "it also invalidates an index set or a tag", ": a worker processes it. It may reach this key: ")
	b.finds("key", key, green) // the reads say that it has none
	gone()
	j.exec("INSERT INTO cache_outbox_sweeps (kind, name) VALUES ('set', 'members:coupon:7')")
	b.finds("key", "other", "May be stale: a sweep of members:coupon:7 was requested ")
	b.finds("key", key, green)
	j.exec("DELETE FROM cache_outbox_sweeps")

	insert("thing", "1", "NULL")
	bare := bareConsole(t, j.consoleAccount(), j.env["REDIS_URL"])
	bare.finds("key", key, "May be stale: row ", "(thing 1)", "this process has no worker, and so no map")
	gone()
	bare.finds("key", key, green)
	bare.finds("key", "other", "Unknown: no row has named this key since the journal begins", "and so no map: which rows reach the key is unknown.")

	const user = "'unstale_few'@'%'"
	t.Cleanup(func() { _, _ = j.db.Exec("DROP USER " + user) }) // the server is the tests' own
	account := j.consoleAccount()
	j.exec("CREATE USER " + user + " IDENTIFIED BY 'secret'")
	for _, table := range []string{"outbox", "outbox_dead", "outbox_delayed", "outbox_journal", "outbox_summaries", "outbox_sweeps", "outbox_version"} {
		j.exec("GRANT SELECT ON " + account.DBName + ".cache_" + table + " TO " + user)
	}
	account.User, account.Passwd = "unstale_few", "secret"
	few := bareConsole(t, account, j.env["REDIS_URL"])
	few.finds("key", key, "Unknown: whether a spot check or a shadow read found an old value cannot be read. It was last unlinked ", "GRANT SELECT ON cache_outbox_stale")
	few.finds("row", "1", "Not stale by its rows")
	j.exec("REVOKE SELECT ON " + account.DBName + ".cache_outbox_dead FROM " + user)
	few.finds("row", "1", "Unknown: where the row is now cannot be read.")
	few.finds("key", key, "Unknown: when it was last invalidated cannot be read.")

	j.exec("INSERT INTO cache_outbox (entity, entity_id, params) SELECT 'variant', '1', '{\"product_id\":[1]}' FROM information_schema.columns LIMIT 500")
	b.finds("key", key, "Unknown: more rows or sweeps wait than a search reads")
}

func (j *judged) consoleAccount() *mysql.Config {
	j.t.Helper()
	account, err := mysql.ParseDSN(j.env["MYSQL_DSN"])
	if err != nil {
		j.t.Fatal(err)
	}
	return account
}

// bareConsole serves a console of a process without a worker.
func bareConsole(t testing.TB, account *mysql.Config, redisURL string) *browser {
	t.Helper()
	at, err := redisurl.Parse(redisURL, false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := console.New(console.Config{MySQL: account, Redis: at})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c)
	t.Cleanup(func() {
		server.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return &browser{t: t, base: server.URL, http: server.Client()}
}
