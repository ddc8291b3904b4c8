package session

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"

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
		return "another session has rows or a table of the outbox locked (a transaction, LOCK TABLES), a backup or FLUSH TABLES WITH READ LOCK keeps MySQL from writing, " +
			"or an ALTER TABLE waits behind a long transaction: see SHOW PROCESSLIST and " + waitPage
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
	case mysqlerr.NoTable:
		return "if the table was renamed, rename it back; unstale migrate up creates the tables of a new outbox"
	case mysqlerr.UnknownCommand:
		return "if the server is a node of a Galera cluster, it has not joined, or the quorum is lost: restore it until SHOW STATUS LIKE 'wsrep_ready' is ON"
	case mysqlerr.NoRight, mysqlerr.NoColumnRight, mysqlerr.NoSpecialRight:
		return "grant the right that the error names; docs/accounts.md lists the grants"
	}
	if isUnanswered(err) {
		return noAnswer
	}
	switch State(err) {
	case StateHung:
		return "free space on the disk of MySQL's binary log, bring back what COMMIT waits for (a semi-synchronous replica, the majority of Group Replication), " +
			"or end the backup that keeps MySQL from committing (BACKUP STAGE, FLUSH TABLES WITH READ LOCK): " +
			"docs/operations.md#rows-make-no-progress; a restart of the worker does not help, and rows are settled when it returns"
	case StateFull:
		return "free space on the MySQL server, or extend the tablespace; nothing else is needed"
	case StateRefused:
		return "fix what the error names"
	}
	return ""
}

const noAnswer = "MySQL does not answer in time; check that it runs, and that this host reaches it; if SHOW PROCESSLIST shows sessions that wait for a table, it is locked: " + waitPage

// isUnanswered reports whether no reply came in time. The driver's limit for a reply, and a server
// that does not greet, end the connection, and the driver reports only that.
func isUnanswered(err error) bool {
	var timeout net.Error
	return State(err) == StateAway && (errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn))
}

// Explain returns err with its fix, if one is known, for example the missing grant. That MySQL does
// not answer replaces err, whose words depend on when the reply was missed.
func Explain(err error) error {
	fix := Fix(err)
	if grant := MissingGrant(err); grant != "" {
		fix = grant + " to this account; docs/accounts.md lists the grants"
	}
	switch {
	case fix == "" || strings.Contains(err.Error(), fix) || strings.Contains(err.Error(), "GRANT "):
		return err
	case fix == noAnswer:
		return errors.New(noAnswer)
	}
	return fmt.Errorf("%w; %s", err, fix)
}

const waitPage = "docs/settings.md#sessions-that-wait"

const readOnlyFix = "MySQL is read-only: find out which server is the primary; if it is this one: SET GLOBAL read_only = 0; if not, let the DSN lead to the primary"
