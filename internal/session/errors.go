package session

import (
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// IsContention reports whether err is a deadlock, a lock wait timeout or a changed record. Nothing
// was committed; run the transaction again.
func IsContention(err error) bool { return mysqlerr.IsContention(err) }

// IsScan reports whether a statement was refused because it would scan the table.
func IsScan(err error) bool { return mysqlerr.Number(err) == mysqlerr.FullScan }

// isUnprepared reports whether a statement cannot be prepared, although it may run as text.
func isUnprepared(err error) bool {
	switch mysqlerr.Number(err) {
	case mysqlerr.ManyPrepared, mysqlerr.Unpreparable, mysqlerr.NeedReprepare:
		return true
	case mysqlerr.UnknownCommand:
		return !mysqlerr.IsNotReady(err)
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

var ErrTooLarge = errors.New("larger than max_allowed_packet")

// IsTooLarge reports whether a statement did not fit max_allowed_packet. A smaller batch may fit.
func IsTooLarge(err error) bool {
	return errors.Is(err, ErrTooLarge) || errors.Is(err, mysql.ErrPktTooLarge) || mysqlerr.Number(err) == mysqlerr.PacketTooLarge
}

// isEnded reports whether the server ended a statement that ran or waited for a lock too long, or
// that another session killed. The errors are 3024 or 1969, 1028 in a sort, 1317 for KILL QUERY,
// and 1205.
func isEnded(err error) bool {
	switch mysqlerr.Number(err) {
	case mysqlerr.SlowMySQL, mysqlerr.SlowMariaDB, mysqlerr.SortAbort, mysqlerr.Interrupted, mysqlerr.LockTimeout:
		return true
	}
	return false
}

// IsStatementFault reports whether the server works but refuses the statement itself, for example
// because of an unknown table, so a retry cannot help. It is false for network errors, for a server
// or a node of a cluster that cannot run it now, and for a statement that took too long.
func IsStatementFault(err error) bool {
	if n := mysqlerr.Number(err); n == 0 || n == mysqlerr.AccessDenied || mysqlerr.IsPassing(err) {
		var shape *LookupShapeError
		var null *LookupNullError
		return errors.As(err, &shape) || errors.As(err, &null)
	}
	return true
}

// IsRefusal reports whether the server responds but refuses permanently: a password, a missing
// database, a statement that it does not accept, a setting that does not fit. Waiting cannot help;
// an operator must fix it.
func IsRefusal(err error) bool {
	var setting SettingError
	return mysqlerr.Number(err) == mysqlerr.AccessDenied || errors.As(err, &setting) || IsStatementFault(err)
}
