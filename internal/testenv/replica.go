package testenv

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/unstale/unstale/internal/servers"
)

// A Replica is a server that follows another one: plain asynchronous replication, by positions of
// the binary log.
type Replica struct {
	*servers.MySQL
	DB     *sql.DB // without a database; closed at the end of the test
	source *sql.DB
	verb   string // REPLICA, or SLAVE on MariaDB
}

// ReplicaArgs are the options that the source of a Replica needs.
var ReplicaArgs = []string{"--server-id=1", "--log-bin=changes"}

// OwnReplica starts a replica of a server without databases. It is read-only until it is promoted.
func OwnReplica(t testing.TB, source *servers.MySQL) *Replica {
	t.Helper()
	r := &Replica{MySQL: OwnMySQL(t, "--server-id=2", "--log-bin=changes", "--read-only=1"), verb: "REPLICA"}
	r.DB, r.source = open(t, r.MySQL), open(t, source)
	where, change := "SHOW BINARY LOG STATUS", "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %d, SOURCE_USER = 'follower', SOURCE_PASSWORD = 'secret', "+
		"SOURCE_LOG_FILE = '%s', SOURCE_LOG_POS = %s, GET_SOURCE_PUBLIC_KEY = 1"
	if r.Flavor() == servers.KindMariaDB {
		r.verb, where = "SLAVE", "SHOW MASTER STATUS"
		change = "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, MASTER_USER = 'follower', MASTER_PASSWORD = 'secret', MASTER_LOG_FILE = '%s', MASTER_LOG_POS = %s"
	}
	for _, statement := range []string{"CREATE USER 'follower'@'%' IDENTIFIED BY 'secret'", "GRANT REPLICATION SLAVE ON *.* TO 'follower'@'%'"} {
		execute(t, r.source, statement)
	}
	file, at := position(t, r.source, where)
	execute(t, r.DB, fmt.Sprintf(change, source.Port(), file, at))
	execute(t, r.DB, "START "+r.verb)
	return r
}

// CatchUp waits until the replica has everything that its source has committed.
func (r *Replica) CatchUp(t testing.TB) {
	t.Helper()
	where, wait := "SHOW BINARY LOG STATUS", "SELECT SOURCE_POS_WAIT('%s', %s, 60)"
	if r.Flavor() == servers.KindMariaDB {
		where, wait = "SHOW MASTER STATUS", "SELECT MASTER_POS_WAIT('%s', %s, 60)"
	}
	file, at := position(t, r.source, where)
	var events sql.Null[int64]
	if err := r.DB.QueryRowContext(t.Context(), fmt.Sprintf(wait, file, at)).Scan(&events); err != nil || !events.Valid || events.V < 0 {
		t.Fatalf("the replica has not caught up: %v, %v", events, err)
	}
}

// Lag makes the replica receive changes without applying them.
func (r *Replica) Lag(t testing.TB) {
	t.Helper()
	execute(t, r.DB, "STOP "+r.verb+" SQL_THREAD")
}

// Promote makes the replica a primary, without what it has not applied.
func (r *Replica) Promote(t testing.TB) {
	t.Helper()
	for _, statement := range []string{"STOP " + r.verb, "RESET " + r.verb + " ALL", "SET GLOBAL read_only = 0"} {
		execute(t, r.DB, statement)
	}
}

func open(t testing.TB, server *servers.MySQL) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", server.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// position returns the end of a server's binary log.
func position(t testing.TB, db *sql.DB, query string) (file, at string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		t.Fatalf("no binary log: %v", errors.Join(err, rows.Err()))
	}
	into := []any{&file, &at}
	for range columns[2:] {
		into = append(into, new(any))
	}
	if err := rows.Scan(into...); err != nil {
		t.Fatal(err)
	}
	return file, at
}
