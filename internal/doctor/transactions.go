package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// serverNow is the system time of the server: InnoDB reports the start of transactions by it,
// independent of the session's time zone.
const serverNow = "CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')"

// Contract for all: no lock on rows; lists of the server. InnoDB reads its lists of transactions
// and locks under a short latch, so they are read once.
const (
	transactionsSQL = `SELECT CAST(trx_id AS CHAR) AS trx, trx_mysql_thread_id AS session, trx_rows_modified AS changed,
trx_lock_structs AS locks, TIMESTAMPDIFF(SECOND, trx_started, ` + serverNow + `) AS age FROM information_schema.innodb_trx
WHERE trx_started <= ` + serverNow + ` - INTERVAL ? SECOND ORDER BY trx_started LIMIT ?`
	outboxLocksSQL = `SELECT DISTINCT CAST(engine_transaction_id AS CHAR) AS trx FROM performance_schema.data_locks
WHERE object_schema = DATABASE() AND object_name LIKE 'cache\_outbox%' AND engine_transaction_id IN (`
	sessionsSQL = "SHOW PROCESSLIST"
	preparedSQL = "XA RECOVER"
)

// mostTransactions is the number of transactions that are examined, oldest first.
const mostTransactions = 100

// transactions finds transactions that keep rows of the outbox invisible or locked: open ones, and
// prepared XA transactions that were never ended.
func transactions(ctx context.Context, e *Exam) (all []Finding, err error) {
	db := e.AuditMySQL.DB()
	if err := auditsOutbox(ctx, e); err != nil {
		return nil, err
	}
	open, err := queryRows(ctx, db, transactionsSQL, int(e.LongTransaction.Seconds()), mostTransactions+1)
	if err != nil {
		return nil, err
	}
	if len(open) > mostTransactions {
		open = open[:mostTransactions]
		all = append(all, unseen("the transactions that are younger than the oldest hundred", fmt.Errorf("more than %d are older than %s", mostTransactions, e.LongTransaction),
			"have applications end theirs, or raise --long-transaction"))
	}
	sessions, err := queryRows(ctx, db, sessionsSQL)
	if err != nil {
		return nil, err
	}
	all = append(all, jam(ctx, db, sessions)...)
	holders, err := holdersOf(ctx, db, open)
	knowsLocks := err == nil
	if n := mysqlerr.Number(err); err != nil && n != mysqlerr.NoTable && n != mysqlerr.NoRight {
		return nil, err
	}
	unclear := 0
	for _, t := range open {
		holds := slices.Contains(holders, t["trx"])
		if knowsLocks && !holds || !knowsLocks && t["changed"] == "0" && t["locks"] == "0" {
			continue
		}
		if !knowsLocks {
			unclear++
		}
		all = append(all, transactionFinding(t, sessions, holds))
	}
	prepared, err := queryRows(ctx, db, preparedSQL)
	switch {
	case err != nil:
		all = append(all, unseen("transactions that are prepared for XA", err, "GRANT XA_RECOVER_ADMIN ON *.* to the account of --audit-mysql-dsn"))
	case len(prepared) > 0:
		all = append(all, found(Warning, "transactions are prepared for XA and wait to be ended: they may hold rows of the outbox, and no restart frees these",
			fmt.Sprintf("%s, the first %s", count(len(prepared), "transaction"), quoted(prepared[0].first("data"))),
			"XA RECOVER CONVERT XID; lists them; XA COMMIT or XA ROLLBACK those that their coordinator has forgotten"))
	}
	if unclear > 0 {
		all = append(all, unseen("whether these transactions hold rows of the outbox", errors.New("the server does not show which tables a transaction has locked"),
			"in MySQL GRANT SELECT ON performance_schema.data_locks; MariaDB has no such list"))
	}
	if len(all) == 0 {
		all = append(all, well("no transaction that holds rows of the outbox is older than %s", e.LongTransaction))
	}
	return all, nil
}

// holdersOf returns the transactions that hold a lock in the outbox.
func holdersOf(ctx context.Context, db *sql.DB, open []row) ([]string, error) {
	ids := []any{"none"} // so that the right is tried in any case
	for _, t := range open {
		ids = append(ids, t["trx"])
	}
	return texts(ctx, db, outboxLocksSQL+strings.Repeat("?, ", len(ids)-1)+"?)", ids...)
}

// Contract: no lock; the dictionary, which shows only tables that the account has a privilege on.
const hasOutboxSQL = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'cache_outbox'"

// auditsOutbox returns an error if the audited database does not have the outbox: rows may then be
// locked elsewhere.
func auditsOutbox(ctx context.Context, e *Exam) error {
	here, err := texts(ctx, e.AuditMySQL.DB(), hasOutboxSQL)
	if err == nil && len(here) == 0 {
		err = errors.New("the database of --audit-mysql-dsn has no outbox, or the account may not read it")
	}
	return err
}

func transactionFinding(t row, sessions []row, holds bool) Finding {
	title := "a transaction is open for long and has changed or locked rows, perhaps of the outbox"
	if holds {
		title = "a transaction is open for long and holds rows of the outbox: nobody sees what it inserted"
	}
	whose := "a session that is gone: it is prepared for XA"
	cure := "XA RECOVER CONVERT XID; lists it"
	if i := slices.IndexFunc(sessions, func(s row) bool { return s["Id"] == t["session"] }); i >= 0 {
		s := sessions[i]
		whose = describe(s)
		cure = "have the application end it; KILL " + s["Id"] + "; rolls it back"
	}
	severity := Warning
	if age, err := strconv.Atoi(t["age"]); err == nil && age > 60 && holds {
		severity = Critical
	}
	return found(severity, title, fmt.Sprintf("open for %s s, %s rows changed, by %s", t["age"], t["changed"], whose), cure)
}
