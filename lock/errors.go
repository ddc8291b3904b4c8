package lock

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrLost is wrapped by what tells that a lock is another's, or may be: its lease was over, it had vanished from the
	// backend, or another token is in MySQL. What the section has written outside of InTx may have met another section.
	ErrLost = errors.New("the lock is lost")
	// ErrLostAfterCommit is wrapped by Do, DoAll and Release if the lock was lost after the last InTx had committed. The changes are
	// kept, so do not begin again. It is not ErrLost.
	ErrLostAfterCommit = errors.New("the lock is lost after its commit")
	// ErrReleased is wrapped by what is refused after Release.
	ErrReleased = errors.New("the lock was released")
	// ErrClosed is wrapped by what is refused after Close.
	ErrClosed = errors.New("the locker is closed")
	// ErrGuardOpen is wrapped by an acquisition that has waited in vain for an earlier holder's guarded transaction. The
	// lock was released.
	ErrGuardOpen = errors.New("a guarded transaction is still open")
	// ErrNoMint is wrapped by Guard and InTx of a Locker that has no MySQL.
	ErrNoMint = errors.New("nothing was minted: set MySQL in lock.Config")
	// ErrNested is wrapped by InTx of a lock while another InTx of the same lock runs.
	ErrNested = errors.New("another InTx of the lock is open")
	// ErrCommit is wrapped by InTx when COMMIT itself failed: the transaction may have been committed.
	ErrCommit = errors.New("commit transaction")
	// ErrBroken is wrapped by every statement of a guarded transaction after one that failed or was refused, and by InTx.
	ErrBroken = errors.New("the guarded transaction is broken")
)

// releasedError is ErrReleased with a name. Its text is made when somebody reads it, and mostly nobody does.
type releasedError string

func (name releasedError) Error() string {
	return fmt.Sprintf("lock %q: %v", string(name), ErrReleased)
}
func (name releasedError) Unwrap() error { return ErrReleased }

// A HeldError says who holds a lock.
type HeldError struct {
	Name   string
	Holder string        // Config.Holder of theirs; "" if the lock was not taken by this package
	Since  time.Time     // by the clock of the backend; zero without a Holder
	For    time.Duration // how long it has been held then, by the same clock; with ZooKeeper by that of this machine
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("lock %q is held by somebody who does not use this package", e.Name)
	}
	return fmt.Sprintf("lock %q is held by %s for %s, since %s", e.Name, e.Holder, e.For, e.Since.UTC().Format("2006-01-02T15:04:05.000Z"))
}
