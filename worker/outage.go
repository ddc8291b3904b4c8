package worker

import (
	"errors"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
)

// outageState names a kind of outage in a word or two, for log and metric.
func outageState(err error) string {
	var redis *keyspace.Outage
	if errors.As(err, &redis) {
		return redisPrefix + redis.State
	}
	return store.State(err)
}

const redisPrefix = "redis "

// outageStates lists what outageState may return.
func outageStates() []string {
	states := store.States()
	for _, s := range keyspace.States() {
		states = append(states, redisPrefix+s)
	}
	return states
}

// needsOperator reports whether a server answers and will go on refusing until somebody changes something.
func needsOperator(state string) bool {
	switch state {
	case store.StateFull, store.StateRefused, redisPrefix + keyspace.StateAuth, redisPrefix + keyspace.StateNoPerm,
		redisPrefix + keyspace.StateWrongMode:
		return true
	}
	return false
}

const (
	firstPause   = 200 * time.Millisecond
	outageLimit  = 400 * time.Millisecond
	refusalLimit = 5 * time.Second
)

// outagePause is the wait after the n-th failure in a row, n from 1, jittered. It is twice the first one at most where
// a server is away: two attempts a second cost a recovering server nothing, a customer waits for the recovery, and the
// last attempt before it may itself take a timeout to fail.
//
// Where a server answers and refuses, it doubles up to five seconds. Only an operator can end that, and each attempt
// unlinks and publishes the same batch again.
func outagePause(err error, n int) time.Duration {
	limit := outageLimit
	if needsOperator(outageState(err)) {
		limit = refusalLimit
	}
	return jitter(min(firstPause<<min(n-1, 10), limit), 0.1)
}
