package keyspace

import (
	"fmt"
	"strings"
)

// A Refusal says that Redis refuses one key (or takes no such pattern) and will go on doing so until somebody changes
// something: NOPERM about the key, WRONGTYPE.
type Refusal struct {
	Key string
	Err error
}

func (r *Refusal) Error() string { return fmt.Sprintf("redis refuses %q: %v", r.Key, r.Err) }

func (r *Refusal) Unwrap() error { return r.Err }

// A Failure says why one target of Unlink is not unlinked.
type Failure struct {
	Index int   // of the target
	Err   error // a *Refusal, or in Cluster the *Outage of the target's master
}

// isRefusal reports whether an error reply concerns one key. It is asked only of replies that can concern one, so never
// of PUBLISH.
//
// A reply that nobody knows counts as an outage: an outage that is taken for the rows' fault would dead-letter every
// row there is, while a fault of one key that is taken for an outage stops the work and is seen.
func isRefusal(err error) bool {
	switch firstWord(err) {
	case "WRONGTYPE":
		return true
	case "NOPERM":
		return !isCommandDenied(err)
	}
	return false
}

// isCommandDenied tells a user who may not run the command at all, which no row can help, from one who may not touch
// this key. Redis has one code for both and nothing but the sentence to tell them apart; this part of it is the same in
// every version since 6.0: "has no permissions to run the 'unlink' command".
func isCommandDenied(err error) bool {
	return strings.Contains(err.Error(), "permissions to run")
}
