package lock

import (
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/dberr"
	"github.com/unstale/unstale/lock/internal/locking"
)

var (
	// ErrLost means that a lock belongs to another holder, or possibly does: its lease had ended,
	// it had vanished from the backend, or MySQL has another token. Writes of the section outside
	// of InTx may have met another section.
	ErrLost = errors.New("the lock is lost")
	// ErrLostAfterCommit is wrapped by Do, DoAll and Release if the lock was lost, or the Locker
	// was closed, after the last InTx had committed. The changes are kept, so do not begin again.
	// It is not ErrLost.
	ErrLostAfterCommit = errors.New("the lock is lost after its commit")
	// ErrReleased means that the lock was released before.
	ErrReleased = errors.New("the lock was released")
	// ErrClosed means that the Locker was closed before.
	ErrClosed = locking.ErrClosed
	// ErrGuardOpen means that an acquisition has waited too long for the guarded transaction of an
	// earlier holder. The lock was released.
	ErrGuardOpen = errors.New("a guarded transaction is still open")
	// ErrNoMint is wrapped by Guard and InTx of a Locker that has no MySQL.
	ErrNoMint = errors.New("nothing was minted: set MySQL in lock.Config")
	// ErrNested is wrapped by InTx of a lock while another InTx of the same lock runs.
	ErrNested = errors.New("another InTx of the lock is open")
	// ErrCommit is wrapped by InTx when COMMIT itself failed: the transaction may have been
	// committed.
	ErrCommit = dberr.ErrCommit
	// ErrBroken is wrapped by every statement of a guarded transaction after one that failed or was
	// refused, and by InTx.
	ErrBroken = errors.New("the guarded transaction is broken")
)

// releasedError is ErrReleased with a name. Its text is rarely read, so it is made on demand.
type releasedError string

func (name releasedError) Error() string {
	return fmt.Sprintf("lock %q: %v", string(name), ErrReleased)
}
func (name releasedError) Unwrap() error { return ErrReleased }

// An unconfirmedError is the error of a release without a confirming reply. The lock was not lost
// before.
type unconfirmedError struct {
	name string
	why  error
}

func (e *unconfirmedError) Error() string { return fmt.Sprintf("release lock %q: %v", e.name, e.why) }
func (e *unconfirmedError) Unwrap() error { return e.why }

// A HeldError names the holder of a lock.
type HeldError struct {
	Name   string
	Holder string    // Config.Holder of the holder; "" if the lock was not taken by this package
	Since  time.Time // by the clock of the backend; zero without a Holder
	// how long it has been held, by the same clock; with ZooKeeper by this machine's clock
	For time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("lock %q is held by a client that does not use this package", e.Name)
	}
	return fmt.Sprintf("lock %q is held by %s for %s, since %s", e.Name, e.Holder, e.For, e.Since.UTC().Format("2006-01-02T15:04:05.000Z"))
}
