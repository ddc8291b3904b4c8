package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Contract for all: no lock on rows; lists of the server. The first is MySQL's, the second is from
// a plugin of MariaDB. Without both, the third lists open transactions, the oldest first.
const (
	metadataLocksMySQL = `SELECT DISTINCT CAST(t.processlist_id AS CHAR) AS session FROM performance_schema.metadata_locks m
JOIN performance_schema.threads t ON t.thread_id = m.owner_thread_id
WHERE m.object_schema = DATABASE() AND m.object_name LIKE 'cache\_outbox%' AND m.lock_status = 'GRANTED'`
	metadataLocksMariaDB = `SELECT DISTINCT CAST(thread_id AS CHAR) AS session FROM information_schema.metadata_lock_info
WHERE table_schema = DATABASE() AND table_name LIKE 'cache\_outbox%'`
	openSessionsSQL = "SELECT CAST(trx_mysql_thread_id AS CHAR) AS session FROM information_schema.innodb_trx ORDER BY trx_started LIMIT 100"
)

// waitsForTable reports whether a session waits until other sessions release one of the outbox
// tables.
func waitsForTable(session row) bool {
	return strings.HasPrefix(session["State"], "Waiting for table metadata lock") && strings.Contains(session["Info"], "cache_outbox")
}

// jam reports the sessions that lock a table of the outbox, if others wait for it: later statements
// wait as well, including those of workers.
func jam(ctx context.Context, db *sql.DB, sessions []row) []Finding {
	waiting := slices.DeleteFunc(slices.Clone(sessions), func(s row) bool { return !waitsForTable(s) })
	if len(waiting) == 0 {
		return nil
	}
	title := "statements wait for a table of the outbox that somebody keeps open, and all later ones wait behind them"
	holders, err := texts(ctx, db, metadataLocksMySQL)
	if err != nil {
		holders, err = texts(ctx, db, metadataLocksMariaDB)
	}
	if err != nil {
		title += "; the oldest transactions may be at fault, the server does not show which"
		holders, err = texts(ctx, db, openSessionsSQL)
	}
	evidence := []string{count(len(waiting), "session waits", "sessions wait") + ", the first is " + describe(waiting[0])}
	cure := ""
	for _, id := range holders {
		i := slices.IndexFunc(sessions, func(s row) bool { return s["Id"] == id && !waitsForTable(s) })
		if i >= 0 {
			evidence = append(evidence, "open: "+describe(sessions[i]))
			cure += "KILL " + id + "; rolls it back\n"
		}
	}
	all := []Finding{found(Critical, title, strings.Join(evidence, "\n"), "have the application end it, or give up the waiting ALTER or LOCK TABLES\n"+strings.TrimSuffix(cure, "\n"))}
	if cure == "" {
		all = append(all, unseen("who keeps the table", errors.Join(errors.New("no session is known to"), err), "look for LOCK TABLES, backups and open transactions in SHOW PROCESSLIST"))
	}
	return all
}

// describe describes a session.
func describe(s row) string {
	text := fmt.Sprintf("session %s of %s@%s in %s, ", s["Id"], s["User"], s["Host"], s["db"])
	if s["Info"] == "" {
		return text + fmt.Sprintf("idle for %s s", s["Time"])
	}
	return text + fmt.Sprintf("which says %q", s["Info"])
}
