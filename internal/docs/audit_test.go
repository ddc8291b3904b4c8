package docs

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/unstale/unstale/internal/testenv"
)

// An auditor holds the parameters of testAudit: the program, the operators' account, Redis, and the
// database as its administrator.
type auditor struct {
	program, operator, redis string
	admin, shop              *sql.DB
}

// testAudit runs all recorded actions with the operators' account of docs/accounts.md: first
// without the privilege to record them, when all must fail, and then with it. Then the account
// tries to forge records.
func testAudit(t *testing.T, a auditor) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nentities: {product: {keys: [\"shop:product:{id}\"]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The replay covers almost nothing: by now the journal has artificial batches that cannot be
	// read.
	actions := [][]string{
		{"pause", "--reason", "moving redis", "--for", "1h"}, {"resume"}, {"dead", "retry", "--reason", "unknown_entity"},
		{"invalidate", "--map", file, "--key", "zahraah:prod:home"},
		{"replay", "--since", "1us", "--redis-url", a.redis, "--channel", "cache:invalidate", "--format", "event"},
	}
	const right = "INSERT (claimed_by, action, arguments, row_count) ON shop.cache_outbox_audit"
	run(t, a.admin, "REVOKE "+right+" FROM 'unstale_operator'@'%'", "INSERT INTO shop.cache_outbox_control (name, who, reason) VALUES ('pause', 'me', '')",
		"UPDATE shop.cache_outbox_dead SET died_at = died_at - INTERVAL 1 HOUR")
	for _, args := range append(actions, []string{"dead", "discard", "--all"}) {
		code, said := exit(t, a.program, a.operator, args...)
		if code != 1 || !strings.Contains(said, "nothing was done") || !strings.Contains(said, "GRANT "+strings.Replace(right, "shop.", "", 1)+" to this account") {
			t.Errorf("%q without the right: exit code %d\n%s", args, code, said)
		}
	}
	want(t, a.shop, "SELECT CONCAT_WS(' ', (SELECT COUNT(*) FROM cache_outbox_dead), (SELECT COUNT(*) FROM cache_outbox_delayed), who) FROM cache_outbox_control", "1 0 me")
	run(t, a.admin, "DELETE FROM shop.cache_outbox_control", "GRANT "+right+" TO 'unstale_operator'@'%'")

	for _, args := range actions {
		call(t, a.program, a.operator, args...)
	}
	want(t, a.shop, "SELECT CONCAT_WS(' ', (SELECT COUNT(*) FROM cache_outbox_dead), entity, entity_id) FROM cache_outbox_delayed", "0 unknown 1")
	want(t, a.shop, "SELECT GROUP_CONCAT(action ORDER BY at, id) FROM cache_outbox_audit", "pause,resume,dead retry,invalidate,replay,replay over")
	want(t, a.shop, "SELECT GROUP_CONCAT(DISTINCT account) FROM cache_outbox_audit WHERE at > SYSDATE(6) - INTERVAL 10 MINUTE", "unstale_operator@%")
	if _, said := exit(t, a.program, a.operator, "audit", "list"); strings.Count(said, "unstale_operator@% (claims to be ") != 6 {
		t.Errorf("audit list:\n%s", said)
	}

	forger := testenv.OpenDB(t, a.operator)
	for statement, number := range map[string]uint16{
		"INSERT INTO cache_outbox_audit (claimed_by, action, arguments, row_count, account) VALUES ('', 'pause', '{}', 0, 'root@localhost')": 1143,
		"INSERT INTO cache_outbox_audit (claimed_by, action, arguments, row_count, at) VALUES ('', 'pause', '{}', 0, '2020-01-01')":          1143,
		"INSERT INTO cache_outbox_audit (claimed_by, action, arguments, row_count, id) VALUES ('', 'pause', '{}', 0, 1)":                     1143,
		"REPLACE INTO cache_outbox_audit (claimed_by, action, arguments, row_count) VALUES ('', 'pause', '{}', 0)":                           1142,
		"UPDATE cache_outbox_audit SET row_count = 0": 1142,
		"DELETE FROM cache_outbox_audit":              1142,
		"TRUNCATE cache_outbox_audit":                 1142,
	} {
		_, err := forger.ExecContext(t.Context(), statement)
		if refused, ok := err.(*mysql.MySQLError); !ok || refused.Number != number {
			t.Errorf("%s: %v", statement, err)
		}
	}
	// The session variables change neither the time nor the ID, and leave other records alone.
	run(t, testenv.OpenDB(t, a.operator), "SET timestamp = 1000000000, insert_id = 18446744073709551614, time_zone = '-11:00', sql_mode = ''",
		"INSERT INTO cache_outbox_audit (claimed_by, action, arguments, row_count) VALUES ('', 'forged', '{}', 0)")
	want(t, a.shop, "SELECT ABS(TIMESTAMPDIFF(SECOND, at, SYSDATE())) < 600 AND id < 18446744073709551614 FROM cache_outbox_audit WHERE action = 'forged'", "1")
	call(t, a.program, a.operator, "pause", "--until-resumed")
	if _, said := exit(t, a.program, a.operator, "status"); !strings.Contains(said, "  database account unstale_operator@%\n") || strings.Contains(said, "no record") {
		t.Errorf("status in a pause:\n%s", said)
	}
	call(t, a.program, a.operator, "resume")
	// The command reports a record that privileges cannot prevent.
	run(t, forger, "INSERT INTO cache_outbox_control (name, who, reason, began_at) VALUES ('pause', 'anna@web', 'raw', UTC_TIMESTAMP() - INTERVAL 1 DAY)")
	if _, said := exit(t, a.program, a.operator, "status"); !strings.Contains(said, "paused by anna@web (raw), of which the audit has no record") {
		t.Errorf("status in a pause that was written by hand:\n%s", said)
	}
	run(t, forger, "DELETE FROM cache_outbox_control")
	if _, said := exit(t, a.program, a.operator, "audit", "list", "--since", "1h"); strings.Count(said, "\n") != 9 || strings.Count(said, "  forged  ") != 1 || !strings.Contains(strings.SplitN(said, "\n", 2)[0], "  resume  ") {
		t.Errorf("audit list:\n%s", said)
	}
	run(t, a.shop, "DELETE FROM cache_outbox_audit ORDER BY at DESC LIMIT 3")
	// A procedure that runs with its definer's privileges records the definer's account.
	run(t, a.admin, "CREATE PROCEDURE shop.lent() INSERT INTO shop.cache_outbox_audit (claimed_by, action, arguments, row_count) VALUES ('', 'lent', '{}', 0)",
		"GRANT EXECUTE ON PROCEDURE shop.lent TO 'unstale_operator'@'%'")
	run(t, forger, "CALL shop.lent()")
	want(t, a.shop, "SELECT account = CURRENT_USER() FROM cache_outbox_audit WHERE action = 'lent'", "1")
	run(t, a.shop, "DELETE FROM cache_outbox_audit WHERE action = 'lent'")
	run(t, a.shop, statements(onlyBlock(t, operationsPage, "sql", "DELETE FROM cache_outbox_audit"))...)
	want(t, a.shop, "SELECT COUNT(*) FROM cache_outbox_audit", "6")
	run(t, a.admin, "REVOKE SELECT ON shop.cache_outbox_workers FROM 'unstale_operator'@'%'")
	if code, said := exit(t, a.program, a.operator, "status"); code != 4 || !strings.Contains(said, "unknown: whether a worker runs cannot be read; ") || !strings.Contains(said, "GRANT SELECT ON cache_outbox_workers") {
		t.Errorf("status without the right to read the workers: exit code %d\n%s", code, said)
	}
}
