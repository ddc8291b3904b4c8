package outbox

import (
	"errors"

	"github.com/go-sql-driver/mysql"
)

// MySQL's error numbers: https://dev.mysql.com/doc/mysql-errors/en/server-error-reference.html
const (
	errLockTimeout = 1205 // ER_LOCK_WAIT_TIMEOUT
	errDeadlock    = 1213 // ER_LOCK_DEADLOCK
)

// isContention reports whether err is a deadlock or a lock wait timeout: nothing was kept, and running the transaction
// again is the cure.
func isContention(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == errDeadlock || e.Number == errLockTimeout)
}
