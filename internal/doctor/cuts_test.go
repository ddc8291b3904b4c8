package doctor_test

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/schema"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/testenv"
)

// wantUnknown checks that the part that a check left out is reported as unknown, with the
// observation.
func (w *testbed) wantUnknown(check, says string) {
	w.t.Helper()
	all := w.examine(check)
	if f := find(all, check, says); f == nil || f.Severity != doctor.Unknown || f.Evidence == "" {
		w.t.Errorf("%s does not say that %q is unknown: %+v", check, says, all)
	}
}

// testCuts exceeds the limits of checks: the rest is unknown, and never ok.
func testCuts(w *testbed) {
	w.t.Helper()
	for _, test := range []func(*testbed){cutNames, cutTransactions, cutAudit, cutSlowLog, cutInfo, cutDatabases, cutLookups, seenSources, seenDelays, newerSchema} {
		test(w)
	}
	w.useMap(everything)
}

// newerSchema: the schema of a later release first lets this binary run, and then does not.
func newerSchema(w *testbed) {
	const finding = "has version 99, which is newer than this binary's"
	w.sql("INSERT INTO shop."+schema.Table+" (version_id, is_applied) VALUES (99, 1)", outlastCache)
	if all := w.examine("schema"); len(all) != 1 || all[0].Severity != doctor.OK || !strings.Contains(all[0].Title, finding) {
		w.t.Errorf("a newer schema: %+v", all)
	}
	w.sql(fmt.Sprintf("UPDATE shop.%s SET oldest = %d WHERE version_id = 99", schema.Table, schema.Version+1), outlastCache)
	if f := find(w.examine("schema"), "schema", "deploy the newer binary"); f == nil || f.Severity != doctor.Critical {
		w.t.Errorf("a newer schema that does not let it run: %+v", f)
	}
	w.sql("DELETE FROM shop."+schema.Table+" WHERE version_id = 99", outlastCache)
}

// cutNames: a map has one name more than are tried.
func cutNames(w *testbed) {
	var keys []string
	for i := range 501 {
		keys = append(keys, fmt.Sprintf(`"zahraah:%d:{id}"`, i))
	}
	w.useMap("version: 1\nentities: {product: {keys: [" + strings.Join(keys, ", ") + "]}}\n")
	w.wantUnknown("redis-rights", "1 more name of the map")
	w.useMap(everything)
}

// cutTransactions: more transactions are open than are examined, first without any work, then one
// that has locked the outbox alone.
func cutTransactions(w *testbed) {
	t := w.t
	var conns []*sql.Conn
	for range 101 {
		conn, err := w.db.DB.Conn(t.Context())
		if err == nil {
			_, err = conn.ExecContext(t.Context(), "START TRANSACTION WITH CONSISTENT SNAPSHOT")
		}
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	w.sql(outlastCache)
	w.wantUnknown("transactions", "more than 100 are older")
	for _, conn := range conns {
		if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
	tx, err := w.db.DB.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(t.Context(), "SELECT * FROM cache_outbox FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	w.sql(outlastCache)
	if all := w.examine("transactions"); find(all, "transactions", "a transaction is open for long") == nil {
		t.Errorf("a lock alone is not told: %+v", all)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	w.sql(outlastCache)
}

// cutAudit: the account of the audit connects elsewhere, or the server does not count.
func cutAudit(w *testbed) {
	right := w.inputs.AuditMySQL
	w.inputs.AuditMySQL = w.mysql(audit, "information_schema")
	w.wantUnknown("transactions", "has no outbox")
	w.wantUnknown("purge", "has no outbox")
	w.inputs.AuditMySQL = right
	if w.db.Flavor == servers.KindMySQL {
		w.sql("SET GLOBAL innodb_monitor_disable = 'trx_rseg_history_len'")
		w.wantUnknown("purge", "trx_rseg_history_len is off")
		w.sql("SET GLOBAL innodb_monitor_enable = 'trx_rseg_history_len'")
	}
}

// cutSlowLog: more commands were slow than are checked, or none are logged.
func cutSlowLog(w *testbed) {
	w.do("config set slowlog-log-slower-than 0")
	for range 130 {
		w.do("ping")
	}
	w.do("config set slowlog-log-slower-than 10000000")
	w.wantUnknown("redis-slowlog", "the newest 128 entries")
	w.do("slowlog reset")
	w.do("config set slowlog-log-slower-than -1")
	w.wantUnknown("redis-slowlog", "the slow log is off")
	w.do("config set slowlog-log-slower-than 10000000")
}

// cutInfo: a Redis that hides some of INFO is not reported as well.
func cutInfo(w *testbed) {
	whole := w.admin.Info(w.t.Context(), "server", "memory", "stats").Val()
	if all := doctor.MemoryOf(whole); len(all) != 1 || all[0].Severity != doctor.OK {
		w.t.Errorf("of the whole: %+v", all)
	}
	for _, line := range []string{"maxmemory_policy", "mem_fragmentation_ratio", "# Stats"} {
		all := doctor.MemoryOf(regexp.MustCompile("(?m)^"+line+".*$").ReplaceAllString(whole, ""))
		if f := find(all, "", "does not tell"); f == nil || f.Severity != doctor.Unknown || doctor.Count(all, doctor.OK) > 0 {
			w.t.Errorf("without %s: %+v", line, all)
		}
	}
}

// cutDatabases: more databases have an outbox than are named.
func cutDatabases(w *testbed) {
	w.sql("GRANT SELECT ON `shop\\_%`.* TO 'unstale'@'%'", "CREATE DATABASE shop_0")
	for i := 1; i <= 6; i++ {
		w.sql(fmt.Sprintf("CREATE DATABASE shop_%d", i), fmt.Sprintf("CREATE TABLE shop_%d.cache_outbox_version (id INT)", i))
	}
	right := w.inputs.MySQL
	w.inputs.MySQL = w.mysql(worker, "shop_0")
	if all := w.examine("schema"); find(all, "schema", "shop_4, and in more") == nil {
		w.t.Errorf("%+v", all)
	}
	w.inputs.MySQL = right
	w.sql("REVOKE SELECT ON `shop\\_%`.* FROM 'unstale'@'%'")
	for i := range 7 {
		w.sql(fmt.Sprintf("DROP DATABASE shop_%d", i))
	}
}

// cutLookups: lookups that the check did not reach are unknown, not faulty.
func cutLookups(w *testbed) {
	t := w.t
	const n = 20 // each may wait for two seconds
	m := "version: 1\nparams:\n"
	for i := range n {
		m += fmt.Sprintf("  p%d: {lookup: {by: [id], sql: \"SELECT product_id, category_id + %d FROM product_categories WHERE product_id IN (?)\"}}\n", i, i)
	}
	m += "entities:\n"
	for i := range n {
		m += fmt.Sprintf("  e%d: {params: [p%d], keys: [\"k:{p%d}\"]}\n", i, i, i)
	}
	w.useMap(m)
	lock, err := w.db.DB.Conn(t.Context())
	if err == nil {
		_, err = lock.ExecContext(t.Context(), "LOCK TABLES product_categories WRITE")
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	inputs := w.inputs
	inputs.MySQL = w.store(session.Config{MySQL: w.dsn(worker, "shop"), Worker: "doctor", LookupTimeout: 2 * time.Second})
	told := make(chan []doctor.Finding)
	go func() { told <- doctor.Examine(ctx, &inputs, "lookups") }()
	testenv.Eventually(t, "a lookup to wait", func() bool {
		waiting := 0
		err := w.db.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock%'").Scan(&waiting)
		return err == nil && waiting > 0
	})
	cancel()
	all := <-told
	if f := find(all, "lookups", "from that of p"); f == nil || f.Severity != doctor.Unknown || doctor.Count(all, doctor.Critical) == n {
		t.Errorf("%+v", all)
	}
	if _, err := lock.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Error(err)
	}
	_ = lock.Close()
}

// seenSources: both sources of a replica are examined.
func seenSources(w *testbed) {
	second, drop := "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 2, SOURCE_USER = 'nobody' FOR CHANNEL 'second'", "RESET REPLICA ALL FOR CHANNEL 'second'"
	if w.db.Flavor == servers.KindMariaDB {
		second, drop = "CHANGE MASTER 'second' TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 2, MASTER_USER = 'nobody'", "RESET SLAVE 'second' ALL"
	}
	w.lonelyReplica()
	w.sql(second)
	if all := w.examine("mysql-replication"); doctor.Count(all, doctor.Warning) != 2 || find(all, "mysql-replication", "second") == nil {
		w.t.Errorf("of two sources: %+v", all)
	}
	w.sql(drop)
	w.resetReplica()
}

// seenDelays: sweeps that no worker runs, and rows that fail repeatedly.
func seenDelays(w *testbed) {
	w.sql("INSERT INTO cache_outbox_sweeps (kind, name, requested_at) VALUES ('pattern', 'a:*', UTC_TIMESTAMP(6) - INTERVAL 5 MINUTE)",
		"INSERT INTO cache_outbox_delayed (entity, entity_id, created_at, due_at, reason, error) VALUES ('product', '1', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, 'redis_refused', 'WRONGTYPE')")
	all := w.examine("queue")
	for says, severity := range map[string]doctor.Severity{
		"1 sweep of patterns or index sets, the first not yet carried out for 5m": doctor.Critical, // no worker
		"(redis_refused): 1 row": doctor.Warning,
	} {
		if f := find(all, "queue", says); f == nil || f.Severity != severity {
			w.t.Errorf("%q is not told: %+v", says, all)
		}
	}
	w.sql("DELETE FROM cache_outbox_sweeps", "DELETE FROM cache_outbox_delayed")
}

// lonelyReplica makes the server a replica whose source is unreachable.
func (w *testbed) lonelyReplica() {
	if w.db.Flavor == servers.KindMariaDB {
		w.sql("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'nobody'")
		return
	}
	w.sql("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1, SOURCE_USER = 'nobody'")
}

func (w *testbed) resetReplica() {
	if w.db.Flavor == servers.KindMariaDB {
		w.sql("RESET SLAVE ALL")
		return
	}
	w.sql("RESET REPLICA ALL")
}
