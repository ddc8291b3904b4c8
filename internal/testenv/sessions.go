package testenv

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
)

// Sessions lists the connections to a server that match a condition on the columns id, user, db and
// info. The processlist would do, but MySQL 9 refuses to show it (error 3854) while any session
// executes a statement with binary text in it.
func Sessions(t testing.TB, db *sql.DB, condition string) (ids []int64) {
	t.Helper()
	var version string
	if err := db.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	list := "SELECT processlist_id AS id, processlist_user AS user, processlist_db AS db, processlist_info AS info FROM performance_schema.threads WHERE processlist_id IS NOT NULL"
	if strings.Contains(version, "MariaDB") {
		list = "SELECT id, user, db, info FROM information_schema.processlist"
	}
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM ("+list+") AS sessions WHERE id <> CONNECTION_ID() AND "+condition)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// KillTransactions kills the connections that have an open transaction in the database that db is
// connected to, and returns their number.
func KillTransactions(t testing.TB, db *sql.DB) int {
	t.Helper()
	ids := Sessions(t, db, "db = DATABASE() AND id IN (SELECT trx_mysql_thread_id FROM information_schema.innodb_trx)")
	for _, id := range ids {
		// the connection may have ended
		_, _ = db.ExecContext(t.Context(), fmt.Sprint("KILL CONNECTION ", id))
	}
	return len(ids)
}
