package store

import (
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// IsContention reports whether err is a deadlock or a lock wait timeout: nothing was kept, running the transaction
// again is the cure.
func IsContention(err error) bool { return mysqlerr.IsContention(err) }

// isScan reports whether a statement was refused because it would scan the table.
func isScan(err error) bool { return mysqlerr.Number(err) == mysqlerr.FullScan }

// isUnprepared reports whether a statement cannot be prepared, though it may well run.
func isUnprepared(err error) bool {
	switch mysqlerr.Number(err) {
	case mysqlerr.ManyPrepared, mysqlerr.Unpreparable, mysqlerr.UnknownCommand, mysqlerr.NeedReprepare:
		return true
	}
	return false
}

// IsGrouping reports whether ONLY_FULL_GROUP_BY refuses a statement.
func IsGrouping(err error) bool {
	switch mysqlerr.Number(err) {
	case mysqlerr.MixedGroups, mysqlerr.NotGrouped, mysqlerr.HavingGrouped, mysqlerr.OrderDistinct:
		return true
	}
	return false
}

var errTooLarge = errors.New("larger than max_allowed_packet")

// IsTooLarge reports whether a statement did not fit max_allowed_packet: a smaller batch may.
func IsTooLarge(err error) bool {
	return errors.Is(err, errTooLarge) || errors.Is(err, mysql.ErrPktTooLarge) || mysqlerr.Number(err) == mysqlerr.PacketTooLarge
}

// isEnded reports whether the server ended a statement for the time that it ran or waited for a lock, or because
// somebody asked it to: 3024 or 1969, in a sort also 1028, 1317 as KILL QUERY says, 1205.
func isEnded(err error) bool {
	switch mysqlerr.Number(err) {
	case mysqlerr.SlowMySQL, mysqlerr.SlowMariaDB, mysqlerr.SortAbort, mysqlerr.Interrupted, mysqlerr.LockTimeout:
		return true
	}
	return false
}

// IsStatementFault reports whether the server is well and refuses the statement itself, such as an unknown table:
// trying again cannot help. Errors of the network, and of a server that is busy, read-only or going down, are not, nor
// is a statement that took too long.
func IsStatementFault(err error) bool {
	switch mysqlerr.Number(err) {
	case 0, mysqlerr.ConCount, mysqlerr.AccessDenied, mysqlerr.Shutdown, mysqlerr.TooManyUserConn, mysqlerr.LockTimeout,
		mysqlerr.Deadlock, mysqlerr.UserLimit, mysqlerr.ReadOnlyOption, mysqlerr.ReadOnlyMode, mysqlerr.NewAbort, mysqlerr.Idle,
		mysqlerr.Interrupted, mysqlerr.SortAbort, mysqlerr.SlowMariaDB, mysqlerr.SlowMySQL:
		var shape *LookupShapeError
		var null *LookupNullError
		return errors.As(err, &shape) || errors.As(err, &null)
	}
	return true
}

// IsRefusal reports whether the server answers and refuses us for good: a password, a missing database, a statement
// that it does not accept, a setting that does not fit. Waiting cannot help, an operator can.
func IsRefusal(err error) bool {
	var setting SettingError
	return mysqlerr.Number(err) == mysqlerr.AccessDenied || errors.As(err, &setting) || IsStatementFault(err)
}
