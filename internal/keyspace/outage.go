package keyspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The states of an Outage. The set is closed, so it can be the label of a metric.
const (
	StateNetwork     = "network"     // refused, reset, unreachable, no node, no sentinel
	StateTimeout     = "timeout"     // no answer, or no free connection, in time
	StateCanceled    = "canceled"    // the caller's context was canceled
	StateClosed      = "closed"      // the Keyspace was closed
	StateLoading     = "loading"     // LOADING
	StateReadOnly    = "readonly"    // READONLY: it is a replica
	StateMasterDown  = "masterdown"  // MASTERDOWN
	StateOOM         = "oom"         // OOM: maxmemory is reached
	StateClusterDown = "clusterdown" // CLUSTERDOWN
	StateMoving      = "moving"      // MOVED, ASK or TRYAGAIN that redirections did not settle
	// MOVED or CROSSSLOT: it is a Cluster, but the URL is for a single server
	StateWrongMode = "wrongmode"
	StateBusy      = "busy" // BUSY: a script runs
	StateAuth      = "auth" // NOAUTH, WRONGPASS
	// NOPERM: the user may not run the command, or not use the channel
	StateNoPerm     = "noperm"
	StateMaxClients = "maxclients" // max number of clients reached
	StateProtected  = "protected"  // DENIED: protected mode
	StateMisconf    = "misconf"    // MISCONF: Redis cannot persist and refuses writes
	// NOREPLICAS, or too few have acknowledged: see Options.WaitReplicas
	StateNoReplicas = "noreplicas"
	StateError      = "error" // any other error reply
)

// States lists the State constants.
func States() []string {
	return []string{
		StateNetwork, StateTimeout, StateCanceled, StateClosed, StateLoading, StateReadOnly, StateMasterDown, StateOOM,
		StateClusterDown, StateMoving, StateWrongMode, StateBusy, StateAuth, StateNoPerm, StateMaxClients,
		StateProtected, StateMisconf, StateNoReplicas, StateError,
	}
}

// replyStates maps the first word of an error reply, which is all that Redis offers as an error
// code.
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

// hints are the fixes of states that do not end without an action.
var hints = map[string]string{
	StateAuth:       "check the user and the password of the redis url",
	StateNoPerm:     "`unstale acl` prints all permissions",
	StateWrongMode:  "the server is a cluster: use redis+cluster://",
	StateProtected:  "set a password for the server's users, or restrict bind and then set protected-mode no",
	StateMaxClients: "raise the server's maxclients, or end clients that CLIENT LIST shows",
	StateOOM:        "raise maxmemory if the host has the memory; set an eviction policy only if everything in this Redis may be evicted",
}

// An Outage means that Redis did not answer, or that its answer is not the fault of a row. Wait and
// repeat the call.
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
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused.state
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

// firstWord returns the code of an error reply, or "" where err is not one.
func firstWord(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	word, _, _ := strings.Cut(reply.Error(), " ")
	return word
}
