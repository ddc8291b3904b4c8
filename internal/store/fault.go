package store

import (
	"errors"

	"github.com/go-sql-driver/mysql"
)

// MySQL's error numbers: https://dev.mysql.com/doc/mysql-errors/en/server-error-reference.html
const (
	errFullDisk        = 20   // EE_DISK_FULL
	errDiskFull        = 1021 // ER_DISK_FULL
	errConCount        = 1040 // ER_CON_COUNT_ERROR
	errAccessDenied    = 1045 // ER_ACCESS_DENIED_ERROR
	errSortAbort       = 1028 // ER_FILSORT_ABORT
	errShutdown        = 1053 // ER_SERVER_SHUTDOWN
	errUnknownCommand  = 1047 // ER_UNKNOWN_COM_ERROR
	errUnknown         = 1105 // ER_UNKNOWN_ERROR
	errTableFull       = 1114 // ER_RECORD_FILE_FULL
	errPacketTooLarge  = 1153 // ER_NET_PACKET_TOO_LARGE
	errFullScan        = 1175 // ER_UPDATE_WITHOUT_KEY_IN_TABLE
	errUnknownVariable = 1193 // ER_UNKNOWN_SYSTEM_VARIABLE
	errTooManyUserConn = 1203 // ER_TOO_MANY_USER_CONNECTIONS
	errLockTimeout     = 1205 // ER_LOCK_WAIT_TIMEOUT
	errDeadlock        = 1213 // ER_LOCK_DEADLOCK
	errUserLimit       = 1226 // ER_USER_LIMIT_REACHED
	errReadOnlyOption  = 1290 // ER_OPTION_PREVENTS_STATEMENT: --read-only
	errUnpreparable    = 1295 // ER_UNSUPPORTED_PS
	errManyPrepared    = 1461 // ER_MAX_PREPARED_STMT_COUNT_REACHED
	errInterrupted     = 1317 // ER_QUERY_INTERRUPTED
	errNeedReprepare   = 1615 // ER_NEED_REPREPARE: its table changes faster than it is prepared
	errReadOnlySession = 1792 // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	errReadOnlyMode    = 1836 // ER_READ_ONLY_MODE
	errSlowMariaDB     = 1969 // ER_STATEMENT_TIMEOUT
	errSlowMySQL       = 3024 // ER_QUERY_TIMEOUT
	errNewAbort        = 3169 // ER_SESSION_WAS_KILLED
	errDiskFullAtOnce  = 3675 // ER_DISK_FULL_NOWAIT
	errIdle            = 4031 // ER_CLIENT_INTERACTION_TIMEOUT
)

// IsContention says whether err is a deadlock or a lock wait timeout: nothing was kept, running the
// transaction again is the cure.
func IsContention(err error) bool {
	n := number(err)
	return n == errDeadlock || n == errLockTimeout
}

// isScan says whether a statement was refused because it would scan the table.
func isScan(err error) bool { return number(err) == errFullScan }

// isUnprepared reports whether a statement cannot be prepared, though it may well run.
func isUnprepared(err error) bool {
	n := number(err)
	return n == errManyPrepared || n == errUnpreparable || n == errUnknownCommand || n == errNeedReprepare
}

var errTooLarge = errors.New("larger than max_allowed_packet")

// IsTooLarge says whether a statement did not fit max_allowed_packet: a smaller batch may.
func IsTooLarge(err error) bool {
	return errors.Is(err, errTooLarge) || errors.Is(err, mysql.ErrPktTooLarge) || number(err) == errPacketTooLarge
}

// isEnded reports whether the server ended a statement for the time that it ran or waited for a lock, or because somebody
// asked it to: 3024 or 1969, in a sort also 1028, 1317 as KILL QUERY says, 1205.
func isEnded(err error) bool {
	switch number(err) {
	case errSlowMySQL, errSlowMariaDB, errSortAbort, errInterrupted, errLockTimeout:
		return true
	}
	return false
}

// IsStatementFault says whether the server is well and refuses the statement itself, such as an unknown
// table: trying again cannot help. Errors of the network, and of a server that is busy, read-only or going
// down, are not, nor is a statement that took too long.
func IsStatementFault(err error) bool {
	switch number(err) {
	case 0, errConCount, errAccessDenied, errShutdown, errTooManyUserConn, errLockTimeout, errDeadlock, errUserLimit,
		errReadOnlyOption, errReadOnlyMode, errNewAbort, errIdle, errInterrupted, errSortAbort, errSlowMariaDB, errSlowMySQL:
		var shape *LookupShapeError
		return errors.As(err, &shape)
	}
	return true
}

// IsRefusal says whether the server answers and refuses us for good: a password, a missing database, a statement
// that it does not accept, a setting that does not fit. Waiting cannot help, an operator can.
func IsRefusal(err error) bool {
	var setting SettingError
	return number(err) == errAccessDenied || errors.As(err, &setting) || IsStatementFault(err)
}

// number is the server's error number, or 0 if err did not come from a server.
func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}
