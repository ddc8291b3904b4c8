package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Errors of this package, for errors.Is. A caller of Fetch gets no errors of Redis: it gets the
// result of its loader.
var (
	// ErrNotFound is returned by a loader for what does not exist, and by Fetch and Get where that
	// is known. It may be wrapped.
	ErrNotFound = errors.New("not found")
	// ErrMiss is returned by Get where nothing usable is cached.
	ErrMiss = errors.New("not in the cache")
	// ErrLeaseLost is returned by Set if the value must not be stored: the key was invalidated, the
	// lease ended, or another caller fills the key.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrTaken is returned by Cache.Lease if another caller fills the key, or no value may be
	// stored now.
	ErrTaken = errors.New("the lease is taken")
	// ErrLoadTimeout is returned by Fetch where the loader took longer than Config.HardTimeout, or
	// waited as long for its turn: see Config.Loads. It matches context.DeadlineExceeded too.
	ErrLoadTimeout = fmt.Errorf("the loader took too long: %w", context.DeadlineExceeded)
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the cache is closed")

	// ErrSerialization is a value that the codec cannot write. Fetch returns the value all the
	// same, and counts it, as Set does.
	ErrSerialization = errors.New("serialize value")
	// ErrRedisConnection means that Redis is unavailable, or refuses all clients.
	ErrRedisConnection = errors.New("redis is away")
	// ErrRedisTimeout is a Redis that did not answer within Config.Timeout.
	ErrRedisTimeout = errors.New("redis did not answer in time")
	// ErrRedisOutOfMemory means that Redis stores no more values: it has reached maxmemory, and its
	// policy evicts nothing.
	ErrRedisOutOfMemory = errors.New("redis is out of memory")
	// ErrNoRedis is returned where Config.Redis is nil and the call is about nothing else.
	ErrNoRedis = errors.New("no Redis is configured")

	// ErrInvalidationPartial means that a Delete or DeleteTag has deleted some keys, and the state
	// of others is unknown: see InvalidationError.
	ErrInvalidationPartial = errors.New("some keys are gone, others may not be")
	// ErrInvalidationTimeout is a Delete or DeleteTag whose answer did not come in time, from Redis
	// or by the caller's deadline. Nothing is known then about the keys that the InvalidationError
	// lists: they may be gone, may be there, and may go later.
	ErrInvalidationTimeout = errors.New("it is not known in time whether the keys are gone")
	// ErrInvalidationPattern is why memory is empty after a message with a pattern that cannot be
	// compiled: which values it means is unknown, so none is kept. It shows in Healthy until memory
	// opens again, and in the log.
	ErrInvalidationPattern = errors.New("a pattern of an invalidation cannot be compiled")
	// ErrMemoryOverflow is why memory keeps nothing while keys are invalidated faster than loads
	// end: more evictions came during each load than are remembered. It shows in the log where
	// several values in a row were refused, and in Healthy for ten seconds after the latest one.
	ErrMemoryOverflow = errors.New("memory keeps nothing: too many evictions come during a load")
	// ErrUnlinkedElsewhere is a worker that unlinks keys of another server or database than
	// Config.Redis: entries were read that are older than the worker's UNLINK of their key, which a
	// message had reported before. One such entry is counted only, since a failover may bring it
	// back; the error needs another one after a message that came ten heartbeats later. It shows in
	// the log, and in Healthy for five minutes after the latest entry. Only a Cache with Memory
	// detects it.
	ErrUnlinkedElsewhere = errors.New("workers unlink keys of another server or database, so entries stay stale until they expire; compare the address and the database number of Config.Redis with the worker's REDIS_URL")
	// ErrBehind is an outbox whose invalidation is behind by more than Memory.MaxBehind: what was
	// committed since may be stale, in Redis and in memory. It shows in Healthy and in the log.
	ErrBehind = errors.New("invalidation is behind")
)

// An InvalidationError lists the keys of a Delete, or tags of a DeleteTag, that may not be deleted.
// It matches ErrInvalidationPartial if others are deleted, ErrInvalidationTimeout if an answer did
// not come in time, and the errors of Redis. Calling again with Keys is harmless.
type InvalidationError struct {
	Keys []string // as they were given
	Gone int      // how many others are gone
	Err  error    // why, one of each kind
}

func (e *InvalidationError) Error() string {
	return fmt.Sprintf("%d keys of %d are not known to be gone, the first is %q: %v", len(e.Keys), len(e.Keys)+e.Gone, e.Keys[0], e.Err)
}

// Unwrap returns the names that the error goes by, and Err.
func (e *InvalidationError) Unwrap() []error {
	errs := []error{e.Err}
	if e.Gone > 0 {
		errs = append(errs, ErrInvalidationPartial)
	}
	if errors.Is(e.Err, ErrRedisTimeout) || errors.Is(e.Err, context.DeadlineExceeded) {
		errs = append(errs, ErrInvalidationTimeout)
	}
	return errs
}

// A LoadError lists the keys that FetchMany could not load. It matches the error of the load.
type LoadError struct {
	Keys []string
	Err  error // the first one
}

func (e *LoadError) Error() string {
	if len(e.Keys) == 1 {
		return fmt.Sprintf("load %q: %v", e.Keys[0], e.Err)
	}
	return fmt.Sprintf("load %d keys, the first is %q: %v", len(e.Keys), e.Keys[0], e.Err)
}

// Unwrap returns Err.
func (e *LoadError) Unwrap() error { return e.Err }

// A PanicError is returned by Fetch if a loader panicked, or ended its goroutine with
// runtime.Goexit, as t.Fatal does. The log has it too, at most once per minute.
type PanicError struct {
	Value any    // what was passed to panic, or an error that names runtime.Goexit
	Stack []byte // of the loader
}

func (e *PanicError) Error() string { return fmt.Sprintf("load panicked: %v\n%s", e.Value, e.Stack) }

// errGoexit is the value of a PanicError if nothing was passed to panic.
var errGoexit = errors.New("runtime.Goexit was called, for example by t.Fatal")

// panicked makes a PanicError of what recover has returned: nil after runtime.Goexit. It logs the
// panic, since a refresh in the background has no caller to return the error to.
func (l *loaders) panicked(key string, value any) error {
	value = cmp.Or(value, any(errGoexit))
	err := &PanicError{value, debug.Stack()}
	if l.panics.due() {
		l.logger.Error("a loader panicked", "key", key, "panic", value, "stack", string(err.Stack))
	}
	return err
}

// awayReplies are the prefixes of replies of a server that serves no client now.
var awayReplies = append([]string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH", "WRONGPASS", "NOREPLICAS", "ERR max number of clients"}, redirections...)

// redirections begin the replies of a server of a Cluster that has not run a command. A client
// returns one after as many as it follows, and it may not be the first answer to that command.
var redirections = []string{"MOVED ", "ASK ", "TRYAGAIN "}

// isReply reports whether a server has answered with err, and the command was not run by any.
func isReply(err error) bool {
	reply, answered := replyOf(err)
	return answered && !hasPrefix(reply, redirections)
}

func hasPrefix(reply string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(reply, prefix) })
}

// replyOf returns the text of an error that a server has answered with.
func replyOf(err error) (text string, answered bool) {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok || errors.Is(err, redis.ErrClosed) {
		return "", false
	}
	return reply.Error(), true
}

// classify names a fault of Redis. It returns nil for an answer: no value, or a refusal that
// concerns one key.
func classify(err error) error {
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return nil
	case errors.Is(err, ErrRedisConnection), errors.Is(err, ErrRedisTimeout), errors.Is(err, ErrRedisOutOfMemory):
		return err
	}
	reply, answered := replyOf(err)
	network, ok := errors.AsType[net.Error](err)
	switch {
	case answered && hasPrefix(reply, awayReplies):
		return fmt.Errorf("%w: %w", ErrRedisConnection, err)
	case answered && strings.HasPrefix(reply, "OOM"):
		return fmt.Errorf("%w: %w", ErrRedisOutOfMemory, err)
	case answered:
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), ok && network.Timeout():
		return fmt.Errorf("%w: %w", ErrRedisTimeout, err)
	}
	return fmt.Errorf("%w: %w", ErrRedisConnection, err)
}
