package keyspace

import (
	"fmt"
	"strings"
)

// A Refusal means that Redis refuses one key (or one pattern is invalid), and will do so until an
// operator changes something: NOPERM about the key, WRONGTYPE.
type Refusal struct {
	Key string
	Err error
}

func (r *Refusal) Error() string { return fmt.Sprintf("redis refuses %q: %v", r.Key, r.Err) }

func (r *Refusal) Unwrap() error { return r.Err }

// A Failure is the reason why one target of Unlink is not unlinked.
type Failure struct {
	Index int   // of the target
	Err   error // a *Refusal, or in Cluster the *Outage of the target's master
}

// isRefusal reports whether an error reply concerns one key. It is called only for commands about
// keys, so never for PUBLISH.
//
// An unknown reply counts as an outage. If an outage counted as the fault of rows, every row would
// become a dead letter. If the fault of one key counts as an outage, the work stops visibly.
func isRefusal(err error) bool {
	switch firstWord(err) {
	case "WRONGTYPE":
		return true
	case "NOPERM":
		return !isCommandDenied(err)
	}
	return false
}

// isCommandDenied distinguishes a user who may not run the command at all, which is not the fault
// of a row, from one who may not access this key. Redis has one code for both, so only the text
// differs. This part of it is the same in every version since 6.0: "has no permissions to run the
// 'unlink' command".
func isCommandDenied(err error) bool {
	return strings.Contains(err.Error(), "permissions to run")
}
