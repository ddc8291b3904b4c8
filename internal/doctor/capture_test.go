package doctor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/servers"
)

// The check reports sessions and defaults that lose rows of a tree or stop replicas, or that it
// does not see them.
func TestCaptureSessions(t *testing.T) {
	t.Parallel()
	w := newWard(t).withAudit()
	w.sql("CREATE TABLE categories (id INT PRIMARY KEY, parent_id INT, FOREIGN KEY (parent_id) REFERENCES categories (id) ON DELETE CASCADE)")
	w.useMap(everything + "capture:\n  categories: {entity: product, id: id}\n")
	w.applyTriggers()
	const (
		isolation = "may lose rows at READ COMMITTED: categories"
		format    = "binlog_format = STATEMENT may stop the replicas"
		logging   = "sql_log_bin = 0 may stop the replicas"
		settings  = "settings of other sessions that write captured tables"
	)
	want := func(text, evidence string, severity doctor.Severity) {
		t.Helper()
		all := w.examine("capture")
		if f := find(all, "capture", text); f == nil || f.Severity != severity || !strings.Contains(f.Evidence, evidence) || f.Cure == "" {
			t.Errorf("%s: %+v among %+v", text, f, all)
		}
	}
	silent := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if f := find(w.examine("capture"), "capture", text); f != nil {
				t.Errorf("%+v", f)
			}
		}
	}
	silent(isolation, format, logging)
	byThread := w.db.Flavor == servers.KindMySQL
	conn, err := w.db.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	do := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ set, reset, text string }{
		{"TRANSACTION ISOLATION LEVEL READ COMMITTED", "TRANSACTION ISOLATION LEVEL REPEATABLE READ", isolation},
		{"binlog_format = STATEMENT", "binlog_format = ROW", format},
		{"sql_log_bin = 0", "sql_log_bin = 1", logging},
	} {
		do("SET SESSION " + c.set)
		if byThread {
			want(c.text, "in 1 session(s) of root", doctor.Warning)
		} else {
			silent(c.text)
		}
		do("SET SESSION " + c.reset)
		silent(c.text)
	}
	for set, text := range map[string]string{"TRANSACTION ISOLATION LEVEL READ COMMITTED": isolation, "binlog_format = STATEMENT": format} {
		w.sql("SET GLOBAL " + set)
		want(text, " by default", doctor.Warning)
	}
	w.sql("SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET GLOBAL binlog_format = ROW")
	silent(isolation, format)
	if byThread {
		silent(settings)
		w.sql("REVOKE SELECT ON performance_schema.variables_by_thread FROM 'unstale_audit'@'%'")
	}
	want(settings, "", doctor.Unknown)
}

// MySQL 9.7 does not follow a cycle of tables by default.
func TestCaptureOfACycle(t *testing.T) {
	t.Parallel()
	w := newWard(t).withAudit()
	w.sql("CREATE TABLE domains (id INT PRIMARY KEY, shop_id INT)",
		"CREATE TABLE shops (id INT PRIMARY KEY, domain_id INT, FOREIGN KEY (domain_id) REFERENCES domains (id) ON DELETE CASCADE)",
		"ALTER TABLE domains ADD FOREIGN KEY (shop_id) REFERENCES shops (id) ON DELETE CASCADE")
	w.useMap(everything + "capture:\n  shops: {entity: product, id: id}\n")
	w.applyTriggers()
	all := w.examine("capture")
	f := find(all, "capture", "in a cycle: domains, shops")
	var native int
	switch err := w.db.DB.QueryRow("SELECT @@GLOBAL.innodb_native_foreign_keys").Scan(&native); {
	case err != nil: // MariaDB, or an earlier MySQL
		if f != nil {
			t.Errorf("%+v", f)
		}
	case f == nil, f.Severity != doctor.Warning, f.Evidence != "innodb_native_foreign_keys is 0 by default":
		t.Errorf("%+v", all)
	}
}

// An account with enough privileges finds a definer without its privileges. For another account the
// result is unknown.
func TestCaptureDefiner(t *testing.T) {
	t.Parallel()
	w := newWard(t).withAudit()
	w.useMap(everything + "capture:\n  products: {entity: product, id: id, on: [insert]}\n")
	w.applyTriggers()
	const unknown = "whether the definer root@localhost of 1 trigger has its privileges"
	if f := find(w.examine("capture"), "capture", unknown); f == nil || f.Severity != doctor.Unknown || !strings.Contains(f.Evidence, "exists") {
		t.Errorf("%+v", w.examine("capture"))
	}
	w.sql("REVOKE SELECT (User, Host) ON mysql.user FROM 'unstale_audit'@'%'")
	if f := find(w.examine("capture"), "capture", unknown); f == nil || f.Severity != doctor.Unknown || strings.Contains(f.Evidence, "exists") {
		t.Errorf("%+v", w.examine("capture"))
	}
	w.sql("GRANT SELECT ON mysql.* TO 'unstale_audit'@'%'")
	if f := find(w.examine("capture"), "capture", "root@localhost"); f != nil {
		t.Errorf("%+v", f)
	}
	w.dropDefiner()
	w.sql("CREATE USER 'unstale_capture'@'localhost' ACCOUNT LOCK", "GRANT INSERT ON shop.cache_outbox TO 'unstale_capture'@'localhost'")
	f := find(w.examine("capture"), "capture", "has too few rights")
	if f == nil || f.Severity != doctor.Critical || !strings.Contains(f.Cure, "GRANT SELECT, TRIGGER ON `shop`.`products` TO 'unstale_capture'@'localhost';") {
		t.Fatalf("%+v", w.examine("capture"))
	}
	w.sql(strings.TrimSuffix(f.Cure, ";"))
	if f := find(w.examine("capture"), "capture", "unstale_capture"); f != nil {
		t.Errorf("%+v", f)
	}
}

// MySQL opens a table once for each path of foreign keys to it, which the check predicts and compares
// with the part of the cache that a session has.
func TestCaptureOpensTables(t *testing.T) {
	t.Parallel()
	w := newWard(t).withAudit()
	w.sql("CREATE TABLE layer0 (id INT PRIMARY KEY, r0 INT, r1 INT, r2 INT)")
	above := []string{"layer0"}
	for layer := 1; layer <= 3; layer++ {
		var tables []string
		for i := range 3 {
			keys := ""
			for j, parent := range above {
				keys += fmt.Sprintf(", FOREIGN KEY (r%d) REFERENCES %s (id) ON DELETE CASCADE", j, parent)
			}
			tables = append(tables, fmt.Sprintf("layer%d_%d", layer, i))
			w.sql("CREATE TABLE " + tables[i] + " (id INT PRIMARY KEY, r0 INT, r1 INT, r2 INT" + keys + ")")
		}
		above = tables
	}
	w.useMap(everything + "capture:\n  layer0: {entity: product, id: id}\n")
	w.applyTriggers()
	const text = "the table cache is too small for foreign keys"
	_, most, err := capture.MostOpens(t.Context(), w.capturer())
	if err != nil {
		t.Fatal(err)
	}
	if w.db.Flavor != servers.KindMySQL {
		if f := find(w.examine("capture"), "capture", text); most != 0 || f != nil {
			t.Errorf("%d, %+v", most, f)
		}
		return
	}
	conn, err := w.db.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// the first delete also reads the dictionary
	for _, s := range []string{"INSERT INTO layer0 (id) VALUES (1)", "DELETE FROM layer0", "INSERT INTO layer0 (id) VALUES (2)", "FLUSH STATUS", "DELETE FROM layer0"} {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	opened := 0
	err = conn.QueryRowContext(t.Context(), "SELECT SUM(variable_value) FROM performance_schema.session_status WHERE variable_name IN ('Table_open_cache_hits', 'Table_open_cache_misses')").Scan(&opened)
	if err != nil || opened < most || opened > 2*most {
		t.Errorf("a delete opened %d tables, and %d were predicted: %v", opened, most, err)
	}
	w.sql("SET GLOBAL table_open_cache = 400") // 25 for a session
	f := find(w.examine("capture"), "capture", text)
	if f == nil || f.Severity != doctor.Warning || !strings.Contains(f.Title, "each delete in layer0 ") {
		t.Fatalf("%+v", f)
	}
	cure, _, _ := strings.Cut(f.Cure, ";")
	w.sql(cure)
	if f := find(w.examine("capture"), "capture", text); f != nil {
		t.Errorf("after the cure: %+v", f)
	}
}
