package session_test

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/internal/storetest"
	"github.com/unstale/unstale/internal/testenv"
)

// hostile are server settings that change the meaning of statements, let them run on or wait for a
// day, or make writes fail.
var hostile = []string{
	"autocommit = 0", "sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'", "time_zone = '+05:00'",
	"lock_wait_timeout = 86400", "innodb_lock_wait_timeout = 86400", "wait_timeout = 86400", "sql_safe_updates = 1",
	"sql_select_limit = 1", "max_join_size = 1", "sql_big_selects = 0", "completion_type = 'CHAIN'", "sql_quote_show_create = 0",
}

// hostileMySQL returns a migrated database on its own server with all hostile settings, as global
// variables and in the data source name.
func hostileMySQL(t *testing.T) (env *testenv.Database, dsn string) {
	t.Helper()
	env = storetest.OwnMigrated(t)
	isolation, settings := "transaction_isolation", slices.Clone(hostile)
	if env.Flavor == servers.KindMariaDB {
		isolation = "tx_isolation"
	} else {
		settings = append(settings, "default_collation_for_utf8mb4 = 'utf8mb4_general_ci'")
	}
	admin, err := env.DB.Conn(t.Context()) // its settings apply to sessions that begin later
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, setting := range append(settings, isolation+" = 'SERIALIZABLE'", "init_connect = 'SET autocommit = 0'") {
		if _, err := admin.ExecContext(t.Context(), "SET GLOBAL "+setting); err != nil {
			t.Fatalf("%s: %v", setting, err)
		}
	}
	cfg, err := mysql.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Params = map[string]string{"autocommit": "0", "sql_mode": "'ANSI_QUOTES'", "time_zone": "'-03:00'", isolation: "'SERIALIZABLE'"}
	cfg.ColumnsWithAlias, cfg.ClientFoundRows, cfg.ParseTime, cfg.InterpolateParams, cfg.MultiStatements = true, true, false, false, true
	cfg.Loc = time.FixedZone("Asia/Tokyo", 9*3600)
	return env, cfg.FormatDSN() + "&charset=latin1"
}

// Every session of a store has the settings that docs/settings.md lists, regardless of the server
// and of the data source name.
func TestSessionsArePinned(t *testing.T) {
	t.Parallel()
	env, dsn := hostileMySQL(t)
	s, err := store.Open(session.Config{MySQL: storetest.Parse(t, dsn), Worker: "a,b:c", ClaimTimeout: 8 * time.Second, LookupTimeout: 150 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	page, err := os.ReadFile("../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]map[string]string{ // where the servers differ
		"claims":  {"silence": "8", "locks": "2", "limit": "8000"},
		"side":    {"silence": "10", "locks": "4", "limit": "5000"},
		"status":  {"silence": "10", "locks": "4", "limit": "0"},
		"lookups": {"silence": "10", "locks": "1", "limit": "150", "read_only": "1", "mode": "ONLY_FULL_GROUP_BY,"},
		"schema":  {"silence": "3600", "locks": "1", "limit": "0", "isolation": "REPEATABLE-READ"},
	}
	for name, db := range s.Sessions.Pools() {
		v := values[name]
		want := map[string]string{
			"wait_timeout": v["silence"], "net_read_timeout": v["silence"], "net_write_timeout": v["silence"],
			"lock_wait_timeout": v["locks"], "innodb_lock_wait_timeout": v["locks"],
			"autocommit": "1", "completion_type": "NO_CHAIN", "time_zone": "+00:00", "sql_mode": v["mode"] + "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION",
			"sql_quote_show_create": "1", "sql_safe_updates": "0", "sql_big_selects": "1", "sql_select_limit": "18446744073709551615", "character_set_client": "utf8mb4",
		}
		readOnly, isolation := cmp.Or(v["read_only"], "0"), cmp.Or(v["isolation"], "READ-COMMITTED")
		if env.Flavor == servers.KindMariaDB {
			var millis int
			_, _ = fmt.Sscan(v["limit"], &millis)
			want["max_statement_time"] = fmt.Sprint(float64(millis) / 1000)
			want["tx_isolation"], want["tx_read_only"] = isolation, readOnly
		} else {
			want["max_execution_time"], want["information_schema_stats_expiry"], want["default_collation_for_utf8mb4"] = v["limit"], "0", "utf8mb4_0900_ai_ci"
			want["transaction_isolation"], want["transaction_read_only"] = isolation, readOnly
		}
		for variable, value := range want {
			var got string
			if err := db.QueryRowContext(t.Context(), "SELECT @@SESSION."+variable).Scan(&got); err != nil || got != value {
				t.Errorf("%s: %s is %q, wanted %q (%v)", name, variable, got, value, err)
			}
			if !strings.Contains(string(page), "`"+variable+"`") && name == "side" {
				t.Errorf("docs/settings.md does not list %s as pinned", variable)
			}
		}
		checkProgramName(t, env, db, name)
	}
}

// checkProgramName checks the attributes of a pool's session. MariaDB keeps them only with its
// performance_schema.
func checkProgramName(t *testing.T, env *testenv.Database, db *sql.DB, pool string) {
	t.Helper()
	if env.Flavor == servers.KindMariaDB {
		return
	}
	var id int64
	if err := db.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"program_name": "unstale", "unstale_worker": "a_b:c", "unstale_pool": pool} {
		var got string
		err := db.QueryRowContext(t.Context(), "SELECT attr_value FROM performance_schema.session_connect_attrs WHERE processlist_id = ? AND attr_name = ?", id, name).Scan(&got)
		if err != nil || got != want {
			t.Errorf("%s: %s is %q, wanted %q (%v)", pool, name, got, want, err)
		}
	}
}

// With the hostile settings everything works and is committed: a pause, a batch, sweeps, and dead
// letters in bulk.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	env, dsn := hostileMySQL(t)
	s := storetest.Open(t, dsn)
	exists := func(table string) (n int) {
		t.Helper()
		// On another connection, which sees only committed data.
		if err := env.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := s.Actions.As("me").Pause(t.Context(), store.AnyPause, "", 0); err != nil || exists("cache_outbox_control") != 1 {
		t.Errorf("%v, %d pauses", err, exists("cache_outbox_control"))
	}
	if p, err := s.Actions.Resume(t.Context(), store.AnyPause); p == nil || err != nil || exists("cache_outbox_control") != 0 {
		t.Errorf("%v, %v, %d pauses", p, err, exists("cache_outbox_control"))
	}
	storetest.Enqueue(t, s.Sessions.DB(), storetest.Products(250)...)
	if n := exists("cache_outbox"); n != 250 {
		t.Errorf("%d rows", n)
	}
	c := storetest.Claim(t, s, storetest.Limits)
	dead := make([]store.DeadRow, len(c.Rows))
	for i, r := range c.Rows {
		dead[i] = store.DeadRow{ID: r.ID, Reason: "unknown_entity"}
	}
	if err := c.Settle(t.Context(), store.Settlement{Dead: dead, Sweeps: []store.Sweep{{Kind: store.SweepPattern, Name: "a*"}}}); err != nil {
		t.Fatal(err)
	}
	if n := exists("cache_outbox_dead"); n != 250 || exists("cache_outbox") != 0 {
		t.Errorf("%d dead letters", n)
	}
	requests, err := s.Sweeps.Sweeps(t.Context(), 10)
	if err != nil || len(requests) != 1 {
		t.Fatal(requests, err)
	}
	if err := s.Sweeps.FinishSweeps(t.Context(), store.Swept{Finished: requests}); err != nil || exists("cache_outbox_sweeps") != 0 {
		t.Errorf("%v, %d sweeps", err, exists("cache_outbox_sweeps"))
	}
	if lock, err := s.Sweeps.TrySweepLock(t.Context()); lock == nil || err != nil {
		t.Errorf("%v, %v", lock, err)
	} else {
		lock.Release()
	}
	if back, err := s.Actions.RetryDead(t.Context(), store.DeadQuery{}, func(int) {}); err != nil || len(back) != 250 || exists("cache_outbox_delayed") != 250 {
		t.Errorf("%d back, %v", len(back), err)
	}
	if st, err := s.Overview.Status(t.Context()); err != nil || st.Delayed != 250 {
		t.Errorf("%+v, %v", st, err)
	}
	storetest.DeadLetter(t, s, true, "redis_refused")
	if _, err := env.DB.Exec("UPDATE cache_outbox_dead SET died_at = died_at - INTERVAL 1 HOUR"); err != nil {
		t.Fatal(err)
	}
	if gone, err := s.Actions.DiscardDead(t.Context(), store.DeadQuery{}, func(int) {}); err != nil || len(gone) != 250 || exists("cache_outbox_dead") != 0 {
		t.Errorf("%d discarded, %v", len(gone), err)
	}
}

// While another session holds a metadata lock, the server itself ends the statements that wait for
// it, before the client gives up, so no session stays behind.
func TestLockedTablesLeaveNoSession(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s, err := store.Open(session.Config{MySQL: storetest.Parse(t, env.DSN), Worker: "test", ClaimTimeout: 6 * time.Second, StatementTimeout: 2500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	blocker, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close()
	if _, err := blocker.ExecContext(t.Context(), "LOCK TABLES cache_outbox WRITE, cache_outbox_dead WRITE, cache_outbox_control WRITE"); err != nil {
		t.Fatal(err)
	}
	const waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table%'"
	for name, do := range map[string]func() error{
		"status":  func() error { _, err := s.Overview.Status(t.Context()); return err },
		"pause":   func() error { return s.Actions.As("me").Pause(t.Context(), store.AnyPause, "", 0) },
		"dead":    func() error { _, _, err := s.Actions.CountDead(t.Context(), store.DeadQuery{}); return err },
		"waiting": func() error { _, err := s.Queue.Waiting(t.Context()); return err },
		"claim":   func() error { _, err := s.Queue.Claim(t.Context(), storetest.Limits); return err },
		"migrate": func() error {
			_, err := s.Sessions.SchemaDB().ExecContext(t.Context(), "ALTER TABLE cache_outbox_dead COMMENT = 'x'")
			return err
		},
	} {
		err := do()
		var refused *mysql.MySQLError
		if !errors.As(err, &refused) || refused.Number != 1205 {
			t.Errorf("%s: %v, wanted the server's lock wait timeout", name, err)
		}
		var n int
		if err := blocker.QueryRowContext(t.Context(), waiting).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d sessions wait for the lock, %v", name, n, err)
		}
	}
	if _, err := blocker.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
}

// The server ends a lookup that takes too long, whether it computes or waits for a table. It counts
// as slow, not as a statement fault, and its session stays usable.
func TestSlowLookup(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s, err := store.Open(session.Config{MySQL: storetest.Parse(t, env.DSN), Worker: "test", LookupTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	connection := func() (id string) {
		t.Helper()
		// on a busy machine even that may be slow
		testenv.Eventually(t, "a quick lookup", func() bool {
			rows, err := s.Lookups.Lookup(t.Context(), "SELECT 1, CONNECTION_ID() FROM DUAL WHERE 1 IN (?)", [][]string{{"1"}}, 1)
			if err != nil {
				return false
			}
			id = rows[0][1]
			return true
		})
		return id
	}
	for _, stmt := range []string{
		"CREATE TABLE held (id INT)", "CREATE TABLE many (n INT)",
		"INSERT INTO many WITH RECURSIVE seq (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM seq WHERE n < 1000) SELECT n FROM seq",
	} {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	blocker, err := env.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close()
	if _, err := blocker.ExecContext(t.Context(), "LOCK TABLES held WRITE"); err != nil {
		t.Fatal(err)
	}
	for name, query := range map[string]string{
		"computes": "SELECT 1, SUM(LENGTH(CONCAT(a.n, b.n, c.n, d.n))) FROM many AS a, many AS b, many AS c, many AS d WHERE 1 IN (?)",
		"recurs":   "WITH RECURSIVE m AS (SELECT n FROM many WHERE 1 IN (?) UNION SELECT m.n + 1 FROM m WHERE m.n < 999) SELECT 1, SUM(LENGTH(CONCAT(a.n, b.n, c.n, d.n))) FROM m AS a, m AS b, m AS c, m AS d",
		"waits":    "SELECT id, id FROM held WHERE id IN (?)",
	} {
		var before string
		// on a busy machine the client may end it first
		testenv.Eventually(t, "the server ends the lookup that "+name, func() bool {
			before = connection()
			_, err := s.Lookups.Lookup(t.Context(), query, [][]string{{"1"}}, 1)
			var slow *session.SlowLookupError
			if !errors.As(err, &slow) || session.IsStatementFault(err) {
				t.Fatalf("%s: %v", name, err)
			}
			var server *mysql.MySQLError
			return errors.As(err, &server)
		})
		if after := connection(); before != after {
			t.Errorf("%s: session %s is gone, %s came", name, before, after)
		}
		if ids := testenv.Sessions(t, env.DB, "db = DATABASE() AND id <> "+before); len(ids) > 2 {
			t.Errorf("%s: sessions %v", name, ids)
		}
	}
	if _, err := blocker.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
}

// A lookup cannot write, not even in a function.
func TestLookupThatWrites(t *testing.T) {
	t.Parallel()
	env := storetest.OwnMigrated(t) // functions want log_bin_trust_function_creators
	for _, stmt := range []string{
		"SET GLOBAL log_bin_trust_function_creators = 1",
		"CREATE TABLE seen (id INT)",
		"CREATE FUNCTION note(id INT) RETURNS INT BEGIN INSERT INTO seen VALUES (id); RETURN id; END",
	} {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	_, err := storetest.Open(t, env.DSN).Lookups.Lookup(t.Context(), "SELECT 1, note(1) FROM DUAL WHERE 1 IN (?)", [][]string{{"1"}}, 1)
	if err == nil || !strings.Contains(err.Error(), "a lookup's session is read-only; let it only read: Error 1792") || !session.IsStatementFault(err) {
		t.Error(err)
	}
	if n := storetest.Count(t, env.DB, "seen"); n != 0 {
		t.Errorf("it wrote %d rows", n)
	}
}
