package session

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/schema"
)

// IsContention reports whether err is a deadlock, a lock wait timeout or a changed record. Nothing
// was committed; run the transaction again.
func IsContention(err error) bool { return mysqlerr.IsContention(err) }

// IsRollback reports whether err proves that another session, or another node of a cluster, was first,
// and that nothing was committed.
func IsRollback(err error) bool { return mysqlerr.IsRollback(err) }

// IsScan reports whether a statement was refused because it would scan the table.
func IsScan(err error) bool { return mysqlerr.Number(err) == mysqlerr.FullScan }

// isUnprepared reports whether a statement cannot be prepared, although it may run as text.
func isUnprepared(err error) bool {
	return mysqlerr.Is(err, mysqlerr.ManyPrepared, mysqlerr.Unpreparable, mysqlerr.NeedReprepare, mysqlerr.UnknownCommand) && !mysqlerr.IsNotReady(err)
}

// IsGrouping reports whether ONLY_FULL_GROUP_BY refuses a statement.
func IsGrouping(err error) bool {
	return mysqlerr.Is(err, mysqlerr.MixedGroups, mysqlerr.NotGrouped, mysqlerr.HavingGrouped, mysqlerr.OrderDistinct)
}

var ErrTooLarge = errors.New("larger than max_allowed_packet")

// IsTooLarge reports whether a statement did not fit max_allowed_packet. A smaller batch may fit.
func IsTooLarge(err error) bool {
	return errors.Is(err, ErrTooLarge) || errors.Is(err, mysql.ErrPktTooLarge) || mysqlerr.Number(err) == mysqlerr.PacketTooLarge
}

// isEnded reports whether the server ended a statement that ran or waited for a lock too long, or
// that another session killed. The errors are 3024 or 1969, 1028 in a sort, 1317 for KILL QUERY,
// and 1205.
func isEnded(err error) bool {
	return mysqlerr.Is(err, mysqlerr.SlowMySQL, mysqlerr.SlowMariaDB, mysqlerr.SortAbort, mysqlerr.Interrupted, mysqlerr.LockTimeout)
}

// IsStatementFault reports whether the server works but refuses the statement itself, for example
// because of an unknown table, so a retry cannot help. It is false for network errors, for a server
// or a node of a cluster that cannot run it now, and for a statement that took too long.
func IsStatementFault(err error) bool {
	if n := mysqlerr.Number(err); n == 0 || n == mysqlerr.AccessDenied || mysqlerr.IsPassing(err) {
		_, isShape := errors.AsType[*LookupShapeError](err)
		_, isNull := errors.AsType[*LookupNullError](err)
		return isShape || isNull
	}
	return true
}

// IsRefusal reports whether the server responds but refuses permanently: a password, a missing
// database, a statement that it does not accept, a setting that does not fit. Waiting cannot help;
// an operator must fix it.
func IsRefusal(err error) bool {
	_, isSetting := errors.AsType[SettingError](err)
	return isSetting || mysqlerr.Number(err) == mysqlerr.AccessDenied || IsStatementFault(err)
}

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
	if Unanswered(err) {
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

// Unanswered reports whether no reply came in time. The driver's limit for a reply, and a server
// that does not greet, end the connection, and the driver reports only that.
func Unanswered(err error) bool {
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

// AuditColumns are the columns of cache_outbox_audit that an operator's account may insert. The
// server sets the account and the time.
const AuditColumns = "claimed_by, action, arguments, row_count"

// deniedRight matches: SELECT command denied to user 'shop'@'%' for table 'cache_outbox', or in
// MariaDB `shop`.`cache_outbox`.
var deniedRight = regexp.MustCompile("([A-Z, ]+) command denied to user .* for table .*?([A-Za-z0-9_$]+)['`]$")

// MissingGrant returns the grant that is missing according to err, for example GRANT SELECT ON
// cache_outbox. It returns an empty string if err is not about a privilege or does not name it.
func MissingGrant(err error) string {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok || e.Number != mysqlerr.NoRight {
		return ""
	}
	m := deniedRight.FindStringSubmatch(e.Message)
	if m == nil {
		return ""
	}
	right := strings.TrimSpace(m[1])
	columns := schema.InsertColumns(m[2])
	if m[2] == "cache_outbox_audit" {
		columns = AuditColumns
	}
	if right == "INSERT" && columns != "" {
		right += " (" + columns + ")"
	}
	return "GRANT " + right + " ON " + m[2]
}

// States of a MySQL error. The set is closed because it is a metric's label.
const (
	// unreachable or temporarily unavailable: the network, a restart, a failover, too many
	// connections
	StateAway = "mysql"
	StateFull = "mysql full" // it cannot store more: a disk, a tablespace, a quota
	// it responds but does not accept a statement: a privilege, a table, a trigger
	StateRefused = "mysql refused"
	// it serves reads, but a COMMIT does not return: a full disk, a missing replica
	StateHung = "mysql hung"
)

// States lists all results of State.
func States() []string { return []string{StateAway, StateFull, StateRefused, StateHung} }

// State classifies an error of MySQL. It returns StateAway for any other error.
func State(err error) string {
	var hung *HungError
	switch {
	case errors.As(err, &hung):
		return StateHung
	case isFull(err):
		return StateFull
	case IsRefusal(err):
		return StateRefused
	}
	return StateAway
}

// isFull reports whether the server could not store data. Errors of the operating system come with
// several error numbers, so the message is checked for their texts.
func isFull(err error) bool {
	if mysqlerr.Number(err) == 0 {
		return false
	}
	text := strings.ToLower(err.Error())
	return mysqlerr.Is(err, mysqlerr.FullDisk, mysqlerr.DiskFull, mysqlerr.TableFull, mysqlerr.DiskFullAtOnce) ||
		strings.Contains(text, "no space left on device") || strings.Contains(text, "disk quota exceeded")
}
