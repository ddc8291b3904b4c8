// Package dberr has the errors of a database that several packages return. Some export them under the
// same name, so errors.Is finds them whichever package returned them.
package dberr

import "errors"

var (
	// ErrReadOnly is a server that accepts no writes. It may be a replica, which lags.
	ErrReadOnly = errors.New("the server is read-only: it may be a replica, which lags; connect to the primary")
	// ErrCommit is a COMMIT that failed, so its outcome is unknown.
	ErrCommit = errors.New("commit transaction")
)
