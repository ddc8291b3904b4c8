package doctor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/redisurl"
)

const drillPage = "../../docs/doctor.md"

// A fault is planted, found by a check that names it, and removed; if cure is set, by the fix of
// the finding.
type fault struct {
	name     string
	check    string
	says     string // in the finding
	severity doctor.Severity
	account  string // the account that finds it: worker, audit or state
	plant    func(w *testbed)
	cure     bool // apply the finding's own fix
	heal     func(w *testbed)
}

// pageFinds reports whether the table of docs/doctor.md has the fault, by check, account and severity.
func pageFinds(page string, f fault) bool {
	_, row, _ := strings.Cut(page, "\n| `"+f.check+"` | "+f.account+" | ")
	row, _, _ = strings.Cut(row, "\n")
	cells := strings.Split(row, "|") // critical, warning
	column := 0
	if f.severity == doctor.Warning {
		column = 1
	}
	return column < len(cells) && slices.Contains(strings.Split(strings.TrimSpace(cells[column]), ", "), f.name)
}

func onMySQL(statements ...string) func(*testbed) { return func(w *testbed) { w.sql(statements...) } }
func onRedis(commands ...string) func(*testbed) {
	return func(w *testbed) { w.do(strings.Join(commands, " ")) }
}
func setConfig(name, value string) func(*testbed) { return onRedis("config set", name, value) }

var drill = []fault{
	{"a missing grant", "mysql-rights", "GRANT DELETE ON `shop`.cache_outbox TO 'unstale'@'%';", doctor.Critical, "worker",
		onMySQL("REVOKE DELETE ON shop.cache_outbox FROM 'unstale'@'%'"), true, nil},
	{"a missing ACL rule", "redis-rights", "ACL SETUSER unstale +unlink", doctor.Critical, "worker", onRedis("acl setuser unstale -unlink"), true, nil},
	{"a lookup without its grant", "lookups", "GRANT SELECT ON", doctor.Critical, "worker",
		onMySQL("REVOKE SELECT ON shop.product_categories FROM 'unstale'@'%'"), false, onMySQL("GRANT SELECT ON shop.product_categories TO 'unstale'@'%'")},
	{"a lookup that is wrong for several IDs", "lookups", "right for one ID and wrong for several", doctor.Critical, "worker",
		withLookup("SELECT product_id, FLOOR(RAND() * 1000000000) FROM product_categories WHERE product_id IN (?)"), false, (*testbed).mendMap},
	{"a lookup that selects an ungrouped column", "lookups", "the next release refuses the lookup", doctor.Warning, "worker",
		withLookup("SELECT product_id, CONCAT(category_id) FROM product_categories WHERE product_id IN (?) GROUP BY product_id"), false, (*testbed).mendMap},
	{"a lookup with a name in braces", "lookups", "the next release refuses the map", doctor.Warning, "worker",
		withLookup("SELECT product_id, category_id FROM product_categories WHERE product_id IN (?) AND 'x' <> '{id}'"), false, (*testbed).mendMap},
	{"no maxmemory", "redis-memory", "maxmemory is not set", doctor.Warning, "audit", setConfig("maxmemory", "0"), false, setConfig("maxmemory", "200mb")},
	{"random eviction", "redis-memory", "evicts keys that are in use, and the workers' beacons", doctor.Warning, "audit", setConfig("maxmemory-policy", "allkeys-random"), false, setConfig("maxmemory-policy", "allkeys-lru")},
	{"noeviction", "redis-memory", "evicts nothing", doctor.Critical, "audit", setConfig("maxmemory-policy", "noeviction"), false, setConfig("maxmemory-policy", "allkeys-lru")},
	{"AOF on a cache", "redis-persistence", "append-only file", doctor.Warning, "audit", setConfig("appendonly", "yes"), false, setConfig("appendonly", "no")},
	{"a dropped trigger", "capture", "a trigger is missing", doctor.Critical, "audit", (*testbed).dropTrigger, false, (*testbed).applyTriggers},
	{"a dropped definer", "capture", "does not exist (1449)", doctor.Critical, "audit", (*testbed).dropDefiner, false, (*testbed).applyTriggers},
	{"a long transaction", "transactions", "a transaction is open for long", doctor.Warning, "audit", (*testbed).openTransaction, false, (*testbed).endTransaction},
	{"a table that a client keeps open", "transactions", "KILL ", doctor.Critical, "audit", (*testbed).jamTable, false, (*testbed).endJam},
	{"a prepared XA transaction", "transactions", "prepared for XA and wait", doctor.Warning, "audit", (*testbed).prepareXA, false, (*testbed).endXA},
	{"no worker", "queue", "no worker has been heard within a day; 1 row waits", doctor.Critical, "worker",
		onMySQL("INSERT INTO shop.cache_outbox (entity, entity_id, created_at) VALUES ('product', '1', UTC_TIMESTAMP(6) - INTERVAL 2 MINUTE)"), false, onMySQL("DELETE FROM shop.cache_outbox")},
	{"an outage of a worker", "queue", "worker web-1 is kept from working (redis noperm): NOPERM", doctor.Critical, "worker", (*testbed).reportOutage, false,
		onMySQL("DELETE FROM shop.cache_outbox", "DELETE FROM shop.cache_outbox_workers")},
	{"an entry that survived an UNLINK", "queue", "the entry of zahraah:product:9 survived an UNLINK", doctor.Critical, "worker", (*testbed).leaveEntry, false,
		func(w *testbed) { w.do("del zahraah:product:9"); w.sql("DELETE FROM shop.cache_outbox_stale") }},
	{"a wrong password of Redis", "reach", "Redis refuses the account", doctor.Critical, "worker",
		func(w *testbed) { w.do("acl setuser unstale resetpass >other"); w.inputs.Redis = w.keys(worker, 0) }, false,
		func(w *testbed) { w.do("acl setuser unstale resetpass >secret"); w.rightRedis() }},
	{"a locked account of MySQL", "reach", "ACCOUNT UNLOCK", doctor.Critical, "worker",
		func(w *testbed) {
			w.sql("ALTER USER 'unstale'@'%' ACCOUNT LOCK")
			w.inputs.MySQL = w.mysql(worker, "shop")
		}, false,
		func(w *testbed) {
			w.sql("ALTER USER 'unstale'@'%' ACCOUNT UNLOCK")
			w.inputs.MySQL = w.mysql(worker, "shop")
		}},
	{"a refused map", "reach", "the map is refused", doctor.Critical, "worker", (*testbed).breakMap, false, (*testbed).mendMap},
	{"workers with another map", "running-map", "carried with another map", doctor.Warning, "worker", (*testbed).settleElsewhere, false, onMySQL("DELETE FROM shop.cache_outbox_journal")},
	{"a lagging replica of Redis", "redis-replication", "bytes behind", doctor.Warning, "audit", (*testbed).lagReplica, false, (*testbed).dropReplica},
	{"a lagging replica of MySQL", "mysql-replication", "the replica is behind", doctor.Warning, "audit", (*testbed).stopReplica, false, (*testbed).startReplica},
	{"the wrong database of MySQL", "schema", "there is one in shop", doctor.Critical, "worker", (*testbed).wrongMySQL, false, func(w *testbed) { w.inputs.MySQL = w.mysql(worker, "shop") }},
	{"a dropped index", "schema", "ADD KEY (due_at)", doctor.Warning, "worker", onMySQL("ALTER TABLE shop.cache_outbox_delayed DROP KEY due"), false, onMySQL("ALTER TABLE shop.cache_outbox_delayed ADD KEY due (due_at)")},
	{"an unknown trigger", "schema", "has the trigger", doctor.Warning, "audit",
		onMySQL("CREATE TRIGGER shop.mine BEFORE INSERT ON shop.cache_outbox_delayed FOR EACH ROW SET NEW.trace = 'mine'"), false, onMySQL("DROP TRIGGER shop.mine")},
	{"the wrong database of Redis", "beacon", "has never heard of the workers", doctor.Critical, "worker", (*testbed).wrongRedis, false, (*testbed).rightRedis},
	{"two databases with one ID on one Redis", "databases", "unstale source replace", doctor.Critical, "worker", serve(served{"", "other", 1}), false, (*testbed).stopServing},
	{"a restored database that is older than Redis", "databases", "unstale source restored", doctor.Critical, "worker", serve(served{"", "own", 3}), false, (*testbed).stopServing},
	{"other data in the cache's Redis", "redis-state", "db7 (keys=1)", doctor.Warning, "audit", func(w *testbed) { w.set(7, "session:1") }, false, func(w *testbed) { w.flush(7) }},
	{"state that may be evicted", "state", "may evict what must stay", doctor.Warning, "state", onState("config set maxmemory-policy allkeys-lru"), false, onState("config set maxmemory-policy noeviction")},
	{"state that a restart loses", "state", "forgets what must stay", doctor.Warning, "state", onState("config set appendonly no"), false, onState("config set appendonly yes")},
	{"state in the cache's Redis", "state", "is that of a server of the cache", doctor.Warning, "audit", (*testbed).stateInCache, false, func(w *testbed) { w.inputs.State = w.keysAt(w.state.Addr(), "unstale_state", 0).Nodes }},
	{"state that is unavailable", "reach", "the Redis of sessions, limits and locks does not answer", doctor.Warning, "state", (*testbed).killState, false, (*testbed).restartState},
	{"a worker that may do too much in Redis", "redis-rights", "FLUSHALL", doctor.Warning, "audit", onRedis("acl setuser unstale +flushall"), false, onRedis("acl setuser unstale -flushall")},
	{"a user that may publish to readers", "redis-publishers", "ACL SETUSER shop resetchannels &cache:invalidate -publish -spublish", doctor.Warning, "audit", (*testbed).letPublish, false, (*testbed).forbidPublishing},
	{"a worker that may do too much in MySQL", "mysql-rights", "DROP", doctor.Warning, "worker", onMySQL("GRANT DROP ON shop.* TO 'unstale'@'%'"), false, onMySQL("REVOKE DROP ON shop.* FROM 'unstale'@'%'")},
	{"an account that may choose the ID of a row", "mysql-inserts", "GRANT INSERT (entity, entity_id, params, trace) ON `shop`.cache_outbox TO 'app_2'@'%'", doctor.Warning, "audit",
		onMySQL("CREATE USER app IDENTIFIED BY 'secret'", "GRANT INSERT ON shop.cache_outbox TO app", "GRANT SELECT, INSERT ON shop.cache_outbox_delayed TO app"), false, (*testbed).insertByColumn},
	{"a table without IDs", "ids", "table cache_outbox has no ID left", doctor.Critical, "worker",
		onMySQL("INSERT INTO shop.cache_outbox (id, entity, entity_id) VALUES (18446744073709551614, 'product', '1')"),
		false, onMySQL("DELETE FROM shop.cache_outbox", "ALTER TABLE shop.cache_outbox AUTO_INCREMENT = 1000000")},
	{"a slow command", "redis-slowlog", "the slowest DEBUG", doctor.Warning, "audit", (*testbed).beSlow, false, onRedis("slowlog reset")},
	{"small packets", "mysql-settings", "max_allowed_packet", doctor.Warning, "worker", onMySQL("SET GLOBAL max_allowed_packet = 1048576"), false, onMySQL("SET GLOBAL max_allowed_packet = 67108864")},
	{"sessions that are not strict", "mysql-settings", "cut in silence", doctor.Warning, "worker",
		onMySQL("SET @@GLOBAL.sql_mode = ''"), false, onMySQL("SET @@GLOBAL.sql_mode = 'STRICT_TRANS_TABLES'")},
	{"a read-only server", "mysql-settings", "read-only", doctor.Critical, "worker", onMySQL("SET GLOBAL read_only = 1"), false, onMySQL("SET GLOBAL read_only = 0")},
	{"few connections", "mysql-connections", "connection", doctor.Critical, "worker", (*testbed).crowd, false, (*testbed).disperse},
	{"dead letters", "queue", "capture_failed: 1", doctor.Warning, "worker",
		onMySQL(`INSERT INTO shop.cache_outbox_dead (entity, entity_id, created_at, first_id, reason, error, map_version) VALUES ('product', '1', UTC_TIMESTAMP(6), 0, 'capture_failed', 'x', '')`),
		false, onMySQL("DELETE FROM shop.cache_outbox_dead")},
}

func (w *testbed) capturer() *capture.Capturer {
	return &capture.Capturer{DB: w.db.DB, Captures: w.inputs.Map.Captures(), Notify: func(string) {}}
}

func (w *testbed) applyTriggers() {
	w.t.Helper()
	if err := w.capturer().Apply(w.t.Context(), func(capture.Change) {}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testbed) dropTrigger() {
	w.t.Helper()
	if err := w.capturer().Drop(w.t.Context(), func(capture.Existing) bool { return true }, func(capture.Existing) {}); err != nil {
		w.t.Fatal(err)
	}
}

// insertByColumn runs the statements of the finding. Then the new account inserts rows and chooses
// no ID.
func (w *testbed) insertByColumn() {
	w.t.Helper()
	f := find(w.examine("mysql-inserts"), "mysql-inserts", "choose the ID")
	w.sql("CREATE USER app_2 IDENTIFIED BY 'secret'")
	for line := range strings.Lines(f.Cure) {
		if strings.HasPrefix(line, "GRANT ") {
			w.sql(strings.TrimSpace(line))
		}
	}
	app := w.mysql("app_2", "shop").DB()
	for statement, number := range map[string]uint16{
		"INSERT INTO cache_outbox (entity, entity_id, params, trace) VALUES ('product', '1', NULL, '')":                                0,
		"INSERT INTO cache_outbox_delayed (entity, entity_id, params, trace, due_at) VALUES ('product', '1', NULL, '', '2000-01-01')":  0,
		"INSERT INTO cache_outbox (id, entity, entity_id) VALUES (18446744073709551614, 'product', '1')":                               mysqlerr.NoColumnRight,
		"INSERT INTO cache_outbox_delayed (id, entity, entity_id, due_at) VALUES (18446744073709551614, 'product', '1', '2000-01-01')": mysqlerr.NoColumnRight,
	} {
		if _, err := app.ExecContext(w.t.Context(), statement); mysqlerr.Number(err) != number {
			w.t.Errorf("%s: %v", statement, err)
		}
	}
	w.sql("DROP USER app, app_2", "DELETE FROM shop.cache_outbox", "DELETE FROM shop.cache_outbox_delayed")
}

// dropDefiner makes triggers run as a separate account, and drops it.
func (w *testbed) dropDefiner() {
	w.t.Helper()
	const account = "'unstale_capture'@'localhost'"
	w.sql("CREATE USER "+account+" ACCOUNT LOCK", "GRANT INSERT (entity, entity_id, params) ON shop.cache_outbox TO "+account, "GRANT SELECT, TRIGGER ON shop.products TO "+account)
	c := w.capturer()
	c.Definer = capture.Account{User: "unstale_capture", Host: "localhost"}
	if err := c.Apply(w.t.Context(), func(capture.Change) {}); err != nil {
		w.t.Fatal(err)
	}
	w.sql("DROP USER " + account)
}

func (w *testbed) openTransaction() {
	w.t.Helper()
	tx, err := w.db.DB.BeginTx(w.t.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(w.t.Context(), "INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '1')")
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.tx = tx
	w.sql(outlastCache)
}

// outlastCache waits in the server until its list of transactions is rebuilt: it is cached for a
// tenth of a second after a read.
const outlastCache = "DO SLEEP(0.15)"

func (w *testbed) endTransaction() {
	if err := w.tx.Rollback(); err != nil {
		w.t.Error(err)
	}
	w.sql(outlastCache)
}

// jamTable reads the outbox in a transaction that stays open, and runs an ALTER TABLE that waits
// for it. Without the audit's account, the unreadable queue is critical too.
func (w *testbed) jamTable() {
	t := w.t
	t.Helper()
	tx, err := w.db.DB.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(t.Context(), "SELECT COUNT(*) FROM cache_outbox")
	}
	if err != nil {
		t.Fatal(err)
	}
	w.tx, w.altered = tx, make(chan error, 1)
	go func() {
		_, err := w.db.DB.ExecContext(t.Context(), "ALTER TABLE cache_outbox COMMENT = 'x'")
		w.altered <- err
	}()
	testenv.Eventually(t, "the ALTER TABLE to wait", func() bool {
		waiting := 0
		err := w.db.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock%'").Scan(&waiting)
		return err == nil && waiting > 0
	})
	right := w.inputs.MySQL
	w.inputs.MySQL = w.store(session.Config{MySQL: w.dsn(worker, "shop"), Worker: "doctor", StatementTimeout: 2 * time.Second})
	if f := find(w.examine("queue"), "queue", "a table of the outbox is locked"); f == nil || f.Severity != doctor.Critical {
		t.Errorf("a queue that nobody can read is well: %+v", w.examine("queue"))
	}
	w.inputs.MySQL = right
}

func (w *testbed) endJam() {
	w.t.Helper()
	if err := errors.Join(w.tx.Rollback(), <-w.altered); err != nil {
		w.t.Error(err)
	}
	w.sql("ALTER TABLE cache_outbox COMMENT = ''", outlastCache)
}

func (w *testbed) prepareXA() {
	w.t.Helper()
	conn, err := w.db.DB.Conn(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	for _, s := range []string{"XA START 'forgotten'", "INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '1')", "XA END 'forgotten'", "XA PREPARE 'forgotten'"} {
		if _, err := conn.ExecContext(w.t.Context(), s); err != nil {
			w.t.Fatal(err)
		}
	}
	_ = conn.Raw(func(any) error { return errors.New("bad") }) // its session is gone
}

func (w *testbed) endXA() { w.sql("XA ROLLBACK 'forgotten'", outlastCache) }

func (w *testbed) breakMap() { w.useMap("version: 1\nentities: {product: {keys: [\"a:{nobody}\"]}}\n") }

// withLookup gives the map another lookup.
func withLookup(sql string) func(*testbed) {
	return func(w *testbed) {
		w.useMap(strings.Replace(everything, "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)", sql, 1))
	}
}

func (w *testbed) mendMap() {
	w.useMap(everything + "capture:\n  products: {entity: product, id: id, on: [insert]}\n")
}

// reportOutage leaves a row, and a worker that reports an outage.
func (w *testbed) reportOutage() {
	w.sql("INSERT INTO shop.cache_outbox (entity, entity_id, created_at) VALUES ('product', '1', UTC_TIMESTAMP(6) - INTERVAL 2 MINUTE)",
		"INSERT INTO shop.cache_outbox_workers (id, name, state, error, since, map_version, channel, format, seen_at) VALUES (REPEAT('a', 16), 'web-1', 'redis noperm', 'NOPERM unlink', UTC_TIMESTAMP(6), 'a', 'c', 'json', UTC_TIMESTAMP(6) + INTERVAL 5 SECOND)")
}

// leaveEntry leaves an entry that a spot check has found, and that no row explains.
func (w *testbed) leaveEntry() {
	w.do("set zahraah:product:9 old")
	w.sql(`INSERT INTO shop.cache_outbox_stale (worker, name, row_id, entity, entity_id, trace, epoch, beat, leased_us, unlinked_us, after_ms, ttl_ms, held, repaired)
VALUES ('web-1', 'zahraah:product:9', 7, 'product', '9', '', 'E', 1, 0, 1, 50, 60000, 0, 0)`)
}

// settleElsewhere leaves a batch of a worker that has another map.
func (w *testbed) settleElsewhere() {
	w.sql("INSERT INTO cache_outbox_journal (worker, row_count, map_version, hashes, body) VALUES ('web-1', 1, 'another', '', '')")
}

// lagReplica stops a replica, and writes data that it then lacks.
func (w *testbed) lagReplica() {
	w.t.Helper()
	w.do("acl setuser default on nopass ~* &* +@all")
	replica := testenv.OwnRedis(w.t, "--replicaof", strings.Replace(w.redis.Addr(), ":", " ", 1))
	testenv.Eventually(w.t, "the replica", func() bool {
		return strings.Contains(w.admin.Info(w.t.Context(), "replication").Val(), "state=online")
	})
	if err := replica.Pause(); err != nil {
		w.t.Fatal(err)
	}
	w.replica = replica
	for i := range 12 {
		if err := w.admin.Set(w.t.Context(), fmt.Sprint("zahraah:large:", i), strings.Repeat("x", 1<<20), 0).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *testbed) dropReplica() {
	w.t.Helper()
	if err := errors.Join(w.replica.Resume(), w.replica.Kill()); err != nil {
		w.t.Fatal(err)
	}
	w.flush(0)
	testenv.Eventually(w.t, "the replica to go", func() bool {
		return strings.Contains(w.admin.Info(w.t.Context(), "replication").Val(), "connected_slaves:0")
	})
}

// crowd opens thirty connections, and leaves room for four.
func (w *testbed) crowd() {
	w.t.Helper()
	for range 30 {
		conn, err := w.db.DB.Conn(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		w.held = append(w.held, conn)
	}
	var name string
	var open int
	if err := w.db.DB.QueryRowContext(w.t.Context(), "SHOW GLOBAL STATUS LIKE 'Threads_connected'").Scan(&name, &open); err != nil {
		w.t.Fatal(err)
	}
	w.sql(fmt.Sprint("SET GLOBAL max_connections = ", open+4))
}

func (w *testbed) disperse() {
	for _, conn := range w.held {
		_ = conn.Close()
	}
	w.held = nil
	w.sql("SET GLOBAL max_connections = 1000")
}

func (w *testbed) wrongMySQL() {
	w.sql("CREATE DATABASE shop_staging", "GRANT SELECT ON shop_staging.* TO 'unstale'@'%'")
	w.inputs.MySQL = w.mysql(worker, "shop_staging")
}

// wrongRedis lets a worker settle a batch, and then points the inputs to another database.
func (w *testbed) wrongRedis() {
	w.t.Helper()
	options, err := redisurl.Parse(w.redis.URL(), false)
	if err != nil {
		w.t.Fatal(err)
	}
	k, err := keyspace.Open(keyspace.Options{Redis: options, BeaconTTL: patience})
	if err != nil {
		w.t.Fatal(err)
	}
	defer k.Close()
	position, err := k.Beacons.CheckBeacon(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.sql(fmt.Sprintf("INSERT INTO cache_outbox_journal (worker, row_count, map_version, hashes, body, epoch, beat) VALUES ('web-1', 1, '%s', '', '', '%s', %d)",
		w.inputs.Map.Version(), position.Epoch, position.N))
	for _, check := range []string{"beacon", "running-map"} {
		if f := w.examine(check); len(f) != 1 || f[0].Severity != doctor.OK {
			w.t.Errorf("where the worker works: %+v", f)
		}
	}
	w.inputs.Redis = w.keys(worker, 3)
}

func (w *testbed) rightRedis() { w.inputs.Redis = w.keys(worker, 0) }

// stateInCache keeps state in another database of the cache's server.
func (w *testbed) stateInCache() {
	w.t.Helper()
	w.acl("unstale_state", "reset on >secret -@all +ping +select +info +scan +pubsub|numsub")
	w.inputs.State = w.keys("unstale_state", 5).Nodes
}

func (w *testbed) killState() { _ = w.state.Kill() } // its error is always nil

func (w *testbed) restartState() {
	w.t.Helper()
	if err := w.state.Restart(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testbed) set(db int, key string) {
	w.t.Helper()
	conn := w.admin.Conn()
	defer conn.Close()
	err := errors.Join(conn.Select(w.t.Context(), db).Err(), conn.Set(w.t.Context(), key, "x", 0).Err(), conn.Select(w.t.Context(), 0).Err())
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *testbed) flush(db int) {
	w.t.Helper()
	conn := w.admin.Conn()
	defer conn.Close()
	err := errors.Join(conn.Select(w.t.Context(), db).Err(), conn.FlushDB(w.t.Context()).Err(), conn.Select(w.t.Context(), 0).Err())
	if err != nil {
		w.t.Fatal(err)
	}
}

// beSlow runs slow commands while the slow log is on. Otherwise the log is off, since the machine
// may be slow.
func (w *testbed) beSlow() {
	for _, command := range []string{"config set slowlog-log-slower-than 10000", "debug sleep 0.05", "config set slowlog-log-slower-than 10000000"} {
		w.do(command)
	}
}
