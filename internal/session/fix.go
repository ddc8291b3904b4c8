package session

import (
	"context"
	"errors"
	"strings"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// Fix returns how to fix a MySQL error that does not resolve on its own, or an empty string if no
// fix is known.
func Fix(err error) string {
	switch mysqlerr.Number(err) {
	case mysqlerr.ReadOnlyOption:
		if text := strings.ToLower(err.Error()); !strings.Contains(text, "read-only") && !strings.Contains(text, "read_only") {
			return ""
		}
		return readOnlyFix
	case mysqlerr.ReadOnlyMode, mysqlerr.ReadOnlySession:
		return readOnlyFix
	case mysqlerr.LockTimeout:
		return "another session has rows or a table of the outbox locked (a transaction, LOCK TABLES, a backup), or an ALTER TABLE waits behind a long transaction: " +
			"see SHOW PROCESSLIST and " + waitPage
	case mysqlerr.AccountLocked, mysqlerr.AccountBlocked:
		return "unlock the account of the DSN: ALTER USER ... ACCOUNT UNLOCK"
	case mysqlerr.PasswordExpired, mysqlerr.NewPassword:
		return "give the account of the DSN a new password: ALTER USER ... IDENTIFIED BY"
	case mysqlerr.AccessDenied:
		return "check user and password of the DSN, and, if the account requires a certificate, MYSQL_TLS_CERT_FILE"
	case mysqlerr.DatabaseDenied, mysqlerr.NoDatabase:
		return "check the database that the DSN names, after the last slash, and the account's privileges on it"
	case mysqlerr.ConCount, mysqlerr.TooManyUserConn, mysqlerr.UserLimit:
		return "close connections, or raise max_connections or the limit of the account"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "MySQL does not answer in time; if SHOW PROCESSLIST shows sessions that wait for a table, it is locked: " + waitPage
	}
	switch State(err) {
	case StateHung:
		return "if it answers reads, free space on the disk of MySQL's binary log, or see SHOW PROCESSLIST for what COMMIT waits for; " +
			"a restart of the worker does not help, and rows are settled when it returns"
	case StateFull:
		return "free space on the MySQL server, or extend the tablespace; nothing else is needed"
	case StateRefused:
		return "grant the right, or fix what the error names; docs/accounts.md lists the grants"
	}
	return ""
}

const waitPage = "docs/settings.md#sessions-that-wait"

const readOnlyFix = "MySQL is read-only: SET GLOBAL super_read_only = 0 and read_only = 0 if it is the primary, or let the DSN lead to the primary"
