package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// longHistory is the number of unpurged transactions that makes reads of the outbox slow: its rows
// are deleted all the time.
const longHistory = 1_000_000

// Contract: no lock; counters. In MariaDB the first needs no privilege, in MySQL the second needs
// PROCESS.
const (
	historyMariaDB = "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'"
	historyMySQL   = "SELECT count AS Value FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len' AND status = 'enabled'"
)

func purge(ctx context.Context, e *Exam) ([]Finding, error) {
	db := e.AuditMySQL.DB()
	if err := auditsOutbox(ctx, e); err != nil {
		return nil, err
	}
	rows, err := queryRows(ctx, db, historyMariaDB)
	if err == nil && len(rows) == 0 {
		rows, err = queryRows(ctx, db, historyMySQL)
	}
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errors.New("the server does not count its history list length: trx_rseg_history_len is off in innodb_monitor_enable")
	}
	n, err := strconv.ParseInt(rows[0].first("Value"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the history list length is %q", rows[0].first("Value"))
	}
	if n >= longHistory {
		return []Finding{found(Warning, "MySQL is behind with purging deleted rows", fmt.Sprintf("history list length %d", n),
			"end the oldest transaction or snapshot, such as a backup: see the check named transactions")}, nil
	}
	return []Finding{well("the history list length is %d", n)}, nil
}
