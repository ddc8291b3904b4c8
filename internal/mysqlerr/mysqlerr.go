// Package mysqlerr names the error numbers of MySQL and MariaDB that the other packages act on.
package mysqlerr

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// The servers' numbers: https://dev.mysql.com/doc/mysql-errors/en/server-error-reference.html
const (
	FullDisk        = 20   // EE_DISK_FULL
	DirectoryLeft   = 1010 // ER_DB_DROP_RMDIR
	RecordChanged   = 1020 // ER_CHECKREAD: a row is newer than the snapshot, in MariaDB with innodb_snapshot_isolation
	DiskFull        = 1021 // ER_DISK_FULL
	SortAbort       = 1028 // ER_FILSORT_ABORT
	ConCount        = 1040 // ER_CON_COUNT_ERROR
	DatabaseDenied  = 1044 // ER_DBACCESS_DENIED_ERROR
	AccessDenied    = 1045 // ER_ACCESS_DENIED_ERROR
	NoneSelected    = 1046 // ER_NO_DB_ERROR
	UnknownCommand  = 1047 // ER_UNKNOWN_COM_ERROR
	NoDatabase      = 1049 // ER_BAD_DB_ERROR
	TableExists     = 1050 // ER_TABLE_EXISTS_ERROR
	Shutdown        = 1053 // ER_SERVER_SHUTDOWN
	ColumnExists    = 1060 // ER_DUP_FIELDNAME
	NotGrouped      = 1055 // ER_WRONG_FIELD_WITH_GROUP
	KeyExists       = 1061 // ER_DUP_KEYNAME
	Duplicate       = 1062 // ER_DUP_ENTRY
	Syntax          = 1064 // ER_PARSE_ERROR
	NothingThere    = 1091 // ER_CANT_DROP_FIELD_OR_KEY
	Unknown         = 1105 // ER_UNKNOWN_ERROR
	TableFull       = 1114 // ER_RECORD_FILE_FULL
	MixedGroups     = 1140 // ER_MIX_OF_GROUP_FUNC_AND_FIELDS
	NoSuchGrant     = 1141 // ER_NONEXISTING_GRANT
	NoRight         = 1142 // ER_TABLEACCESS_DENIED_ERROR
	NoColumnRight   = 1143 // ER_COLUMNACCESS_DENIED_ERROR
	NoTable         = 1146 // ER_NO_SUCH_TABLE
	PacketTooLarge  = 1153 // ER_NET_PACKET_TOO_LARGE
	FullScan        = 1175 // ER_UPDATE_WITHOUT_KEY_IN_TABLE
	ErrorInCommit   = 1180 // ER_ERROR_DURING_COMMIT, with the number of the storage engine's error
	UnknownVariable = 1193 // ER_UNKNOWN_SYSTEM_VARIABLE
	TooManyUserConn = 1203 // ER_TOO_MANY_USER_CONNECTIONS
	LockTimeout     = 1205 // ER_LOCK_WAIT_TIMEOUT
	Deadlock        = 1213 // ER_LOCK_DEADLOCK
	UserLimit       = 1226 // ER_USER_LIMIT_REACHED
	NoSpecialRight  = 1227 // ER_SPECIFIC_ACCESS_DENIED_ERROR
	ReadOnlyOption  = 1290 // ER_OPTION_PREVENTS_STATEMENT: --read-only
	Unpreparable    = 1295 // ER_UNSUPPORTED_PS
	Interrupted     = 1317 // ER_QUERY_INTERRUPTED
	UnsafeRoutine   = 1419 // ER_BINLOG_CREATE_ROUTINE_NEED_SUPER
	ManyPrepared    = 1461 // ER_MAX_PREPARED_STMT_COUNT_REACHED
	HavingGrouped   = 1463 // ER_NON_GROUPING_FIELD_USED
	NeedReprepare   = 1615 // ER_NEED_REPREPARE: its table changes faster than it is prepared
	ReadOnlySession = 1792 // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	NewPassword     = 1820 // ER_MUST_CHANGE_PASSWORD
	PasswordExpired = 1862 // ER_MUST_CHANGE_PASSWORD_LOGIN
	ReadOnlyMode    = 1836 // ER_READ_ONLY_MODE
	KilledMariaDB   = 1927 // ER_CONNECTION_KILLED
	SlowMariaDB     = 1969 // ER_STATEMENT_TIMEOUT
	SlowMySQL       = 3024 // ER_QUERY_TIMEOUT
	OfflineMode     = 3032 // ER_SERVER_OFFLINE_MODE
	OrderDistinct   = 3065 // ER_FIELD_IN_ORDER_NOT_SELECT
	HookFailed      = 3100 // ER_RUN_HOOK_ERROR: Group Replication has not accepted a transaction
	CommitRefused   = 3101 // ER_TRANSACTION_ROLLBACK_DURING_COMMIT: another node of a group was first
	AccountLocked   = 3118 // ER_ACCOUNT_HAS_BEEN_LOCKED
	NewAbort        = 3169 // ER_SESSION_WAS_KILLED
	DiskFullAtOnce  = 3675 // ER_DISK_FULL_NOWAIT
	GroupState      = 3796 // ER_GRP_TRX_CONSISTENCY_NOT_ALLOWED: the node of the group joins or has left
	GroupBefore     = 3797 // ER_GRP_TRX_CONSISTENCY_BEFORE
	GroupAfter      = 3798 // ER_GRP_TRX_CONSISTENCY_AFTER_ON_TRX_BEGIN
	GroupBegin      = 3799 // ER_GRP_TRX_CONSISTENCY_BEGIN_NOT_ALLOWED
	Idle            = 4031 // ER_CLIENT_INTERACTION_TIMEOUT
	AccountBlocked  = 4151 // ER_ACCOUNT_HAS_BEEN_LOCKED of MariaDB
)

// Number returns the server's error number, or 0 if err did not come from a server.
func Number(err error) uint16 {
	n, _ := parts(err)
	return n
}

// Is reports whether err came from a server and has one of the numbers.
func Is(err error, numbers ...uint16) bool { return slices.Contains(numbers, Number(err)) }

func parts(err error) (number uint16, message string) {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number, e.Message
	}
	return 0, ""
}

// IsContention reports whether err is a deadlock, a lock wait timeout, or a row that changed after
// the snapshot of the transaction or on another node of a cluster: roll back and run the
// transaction again.
func IsContention(err error) bool {
	return Is(err, LockTimeout, RecordChanged) || IsRollback(err)
}

// IsRollback reports whether an error of COMMIT proves that the transaction is rolled back on all
// nodes of a cluster: another node has changed one of its rows first. No other error of COMMIT does:
// after 1205 and 1047 the transaction is still open, and after 3100 the other nodes may have
// committed it.
func IsRollback(err error) bool {
	n, message := parts(err)
	return n == Deadlock || n == CommitRefused ||
		n == ErrorInCommit && strings.Contains(message, " 149 ") // the number of a deadlock in InnoDB
}

// IsPassing reports whether another attempt may succeed without a change of the statement, the
// account or the settings: the server, or its node of a cluster, is busy, joining, read-only,
// without a quorum or shutting down, or it ended the statement or the session. It is false for an
// error that is not from a server.
func IsPassing(err error) bool {
	return IsContention(err) || IsNotReady(err) ||
		Is(err, ConCount, Shutdown, TooManyUserConn, UserLimit, ReadOnlyOption, ReadOnlyMode, OfflineMode, HookFailed,
			GroupState, GroupBefore, GroupAfter, GroupBegin, Interrupted, SortAbort, SlowMariaDB, SlowMySQL, NewAbort, KilledMariaDB, Idle)
}

// IsNotReady reports whether err is from a node of a Galera cluster that has no quorum or joins.
func IsNotReady(err error) bool {
	n, message := parts(err)
	return n == UnknownCommand && strings.HasPrefix(message, "WSREP")
}
