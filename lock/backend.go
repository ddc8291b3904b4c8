package lock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/unstale/unstale/lock/internal/locking"
)

// A Backend keeps locks: [Redis], [Redlock] or the Backend of package lock/zk. Only packages of
// unstale make one, since others cannot fill an Opener.
type Backend interface {
	// Opener returns what a Locker uses. It sends nothing.
	Opener() Opener
}

// An Opener opens a Backend for a Locker. Applications do not need it.
type Opener = locking.Opener

// MaxName is the length of a lock's name at most, in bytes.
const MaxName = 255

// checkName refuses what the backends cannot tell apart.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("the name of the lock is empty")
	case len(name) > MaxName:
		return fmt.Errorf("the name of the lock has %d bytes, %d at most are possible", len(name), MaxName)
	case strings.ContainsAny(name, "{}"):
		return fmt.Errorf("the name of the lock, %q, has a brace, from which Redis Cluster would derive its slot", name)
	}
	return nil
}
