package keyspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// What an Outage may be. The set is closed, so that it can be a metric's label.
const (
	StateNetwork     = "network"     // refused, reset, unreachable, no node, no sentinel
	StateTimeout     = "timeout"     // no answer, or no free connection, in time
	StateCanceled    = "canceled"    // the caller's context was cancelled
	StateClosed      = "closed"      // the Keyspace was closed
	StateLoading     = "loading"     // LOADING
	StateReadOnly    = "readonly"    // READONLY: it is a replica
	StateMasterDown  = "masterdown"  // MASTERDOWN
	StateOOM         = "oom"         // OOM: maxmemory is reached
	StateClusterDown = "clusterdown" // CLUSTERDOWN
	StateMoving      = "moving"      // MOVED, ASK or TRYAGAIN that redirections did not settle
	StateWrongMode   = "wrongmode"   // MOVED or CROSSSLOT: it is a Cluster, the URL says that it is not
	StateBusy        = "busy"        // BUSY: a script runs
	StateAuth        = "auth"        // NOAUTH, WRONGPASS
	StateNoPerm      = "noperm"      // NOPERM: the user may not run the command, or not use the channel
	StateMaxClients  = "maxclients"  // max number of clients reached
	StateMisconf     = "misconf"     // MISCONF: Redis cannot persist and refuses writes
	StateNoReplicas  = "noreplicas"  // NOREPLICAS, or too few have acknowledged: see Options.WaitReplicas
	StateError       = "error"       // any other error reply
)

// States lists the State constants.
func States() []string {
	return []string{
		StateNetwork, StateTimeout, StateCanceled, StateClosed, StateLoading, StateReadOnly, StateMasterDown, StateOOM,
		StateClusterDown, StateMoving, StateWrongMode, StateBusy, StateAuth, StateNoPerm, StateMaxClients, StateMisconf,
		StateNoReplicas, StateError,
	}
}

// replyStates maps the first word of an error reply, which is all that Redis offers as an error code.
var replyStates = map[string]string{
	"LOADING":     StateLoading,
	"READONLY":    StateReadOnly,
	"MASTERDOWN":  StateMasterDown,
	"OOM":         StateOOM,
	"CLUSTERDOWN": StateClusterDown,
	"MOVED":       StateMoving,
	"ASK":         StateMoving,
	"TRYAGAIN":    StateMoving,
	"CROSSSLOT":   StateWrongMode,
	"BUSY":        StateBusy,
	"NOAUTH":      StateAuth,
	"WRONGPASS":   StateAuth,
	"NOPERM":      StateNoPerm,
	"MISCONF":     StateMisconf,
	"NOREPLICAS":  StateNoReplicas,
}

// hints are what to do about states that do not pass by themselves.
var hints = map[string]string{
	StateAuth:      "check the user and the password of the redis url",
	StateNoPerm:    "docs/accounts.md lists the rights",
	StateWrongMode: "the server is a cluster: use redis+cluster://",
	StateOOM:       "raise maxmemory or set an eviction policy",
}

// An Outage says that Redis could not be asked, or answered with something that is no row's fault. Wait and do it all
// again.
type Outage struct {
	Err   error
	State string // one of the State constants
}

func (o *Outage) Error() string {
	text := fmt.Sprintf("redis outage (%s): %v", o.State, o.Err)
	if hint := hints[o.State]; hint != "" {
		text += "; " + hint
	}
	return text
}

func (o *Outage) Unwrap() error { return o.Err }

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

// outage makes an Outage of an error that is not one yet.
func outage(err error) *Outage {
	var already *Outage
	if errors.As(err, &already) {
		return already
	}
	return &Outage{Err: err, State: stateOf(err)}
}

func stateOf(err error) string {
	if redis.IsMaxClientsError(err) {
		return StateMaxClients
	}
	if word := firstWord(err); word != "" {
		if state, ok := replyStates[word]; ok {
			return state
		}
		return StateError
	}
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return StateCanceled
	case errors.Is(err, redis.ErrClosed):
		return StateClosed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout),
		errors.As(err, &timeout) && timeout.Timeout():
		return StateTimeout
	}
	return StateNetwork
}

// firstWord is the code of an error reply, or "" where err is not one.
func firstWord(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	word, _, _ := strings.Cut(reply.Error(), " ")
	return word
}
