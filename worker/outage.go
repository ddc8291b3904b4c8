package worker

import (
	"errors"

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

// cures say what to do about MySQL's states that do not pass by themselves. Redis' errors say so themselves.
var cures = map[string]string{
	store.StateFull:    "free space on the MySQL server, or extend the tablespace; nothing else is to be done",
	store.StateRefused: "grant the right, or fix what the error names; docs/accounts.md lists the grants",
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
