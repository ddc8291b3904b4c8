package doctor_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/testenv"
)

// follow starts a replica of the testbed's server, and points the audit to it.
func (w *testbed) follow() {
	t := w.t
	t.Helper()
	w.follower = testenv.OwnDatabase(t, "--server-id=2")
	where, change := "SHOW BINARY LOG STATUS", "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %s, SOURCE_USER = 'follower', SOURCE_PASSWORD = 'secret', "+
		"SOURCE_LOG_FILE = '%s', SOURCE_LOG_POS = %s, GET_SOURCE_PUBLIC_KEY = 1"
	grants := "GRANT PROCESS, REPLICATION CLIENT ON *.* TO 'unstale_audit'@'%'"
	if w.db.Flavor == servers.KindMariaDB {
		where, change = "SHOW MASTER STATUS", "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %s, MASTER_USER = 'follower', MASTER_PASSWORD = 'secret', "+
			"MASTER_LOG_FILE = '%s', MASTER_LOG_POS = %s"
		grants = "GRANT PROCESS, REPLICA MONITOR ON *.* TO 'unstale_audit'@'%'"
	}
	w.sql("CREATE USER 'follower'@'%' IDENTIFIED BY 'secret'", "GRANT REPLICATION SLAVE ON *.* TO 'follower'@'%'")
	var port, file, at string
	rows, err := w.db.DB.QueryContext(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		t.Fatalf("no log of changes: %v", errors.Join(err, rows.Err()))
	}
	into := []any{&file, &at}
	for range columns[2:] {
		into = append(into, new(any))
	}
	if err := errors.Join(rows.Scan(into...), rows.Close(), w.db.DB.QueryRowContext(t.Context(), "SELECT @@port").Scan(&port)); err != nil {
		t.Fatal(err)
	}
	w.onFollower("CREATE TABLE cache_outbox (id INT)", "CREATE USER 'unstale_audit'@'%' IDENTIFIED BY 'secret'",
		"GRANT SELECT ON shop.* TO 'unstale_audit'@'%'", grants)
	w.lookAtFollower()
	if f := find(w.examine("reach"), "reach", "another server than --mysql-dsn"); f == nil || f.Severity != doctor.Warning || strings.Contains(f.Evidence, "replica") {
		t.Errorf("reach does not tell of another server: %+v", f)
	}
	w.onFollower(fmt.Sprintf(change, port, file, at), w.replicaVerb("START"))
}

// lookAtFollower points the audit to the replica.
func (w *testbed) lookAtFollower() {
	t := w.t
	t.Helper()
	c, err := mysql.ParseDSN(w.follower.DSN)
	if err != nil {
		t.Fatal(err)
	}
	c.User, c.Passwd = audit, "secret"
	w.inputs.AuditMySQL = w.store(session.Config{MySQL: c, Worker: "doctor"})
}

func (w *testbed) onFollower(statements ...string) {
	w.t.Helper()
	for _, s := range statements {
		if _, err := w.follower.DB.ExecContext(w.t.Context(), s); err != nil {
			w.t.Fatalf("%s: %v", s, err)
		}
	}
}

// replicaVerb returns the verb with the server's word for a replica: MariaDB says SLAVE.
func (w *testbed) replicaVerb(verb string) string {
	if w.db.Flavor == servers.KindMariaDB {
		return verb + " SLAVE"
	}
	return verb + " REPLICA"
}

// stopReplica lets a replica follow, and then stops applying. It reports nothing about its source's
// transactions.
func (w *testbed) stopReplica() {
	w.t.Helper()
	w.follow()
	testenv.Eventually(w.t, "the replica to follow", func() bool {
		all := w.examine("mysql-replication")
		return doctor.Worst(all) == doctor.OK
	})
	w.wantUnknown("transactions", "leads to another server than --mysql-dsn, a replica of it")
	w.wantUnknown("capture", "")
	if f := find(w.examine("reach"), "reach", "a replica of it"); f == nil || f.Severity != doctor.Info {
		w.t.Errorf("reach does not tell of a replica: %+v", f)
	}
	w.wantUnknown("purge", "leads to another server")
	w.onFollower(w.replicaVerb("STOP") + " SQL_THREAD")
}

func (w *testbed) startReplica() {
	w.t.Helper()
	w.onFollower(w.replicaVerb("START") + " SQL_THREAD")
	testenv.Eventually(w.t, "the replica to catch up", func() bool { return doctor.Worst(w.examine("mysql-replication")) == doctor.OK })
	w.onFollower(w.replicaVerb("STOP"))
	w.inputs.AuditMySQL = w.mysql(audit, "shop")
}
