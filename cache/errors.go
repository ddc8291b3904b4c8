package cache

import (
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

// What the functions of this package return, for errors.Is. A caller of Fetch sees none of Redis' errors: it gets what its
// loader returned.
var (
	// ErrNotFound is returned by a loader for what does not exist, and by Fetch and Get where that is known. It may be
	// wrapped.
	ErrNotFound = errors.New("not found")
	// ErrMiss is returned by Get where nothing usable is cached.
	ErrMiss = errors.New("not in the cache")
	// ErrLeaseLost is returned by Set where the value must not be stored: the key was invalidated, the lease ended, or
	// somebody else fills the key.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrTaken is returned by Cache.Lease where somebody else fills the key, or nothing may be stored under it now.
	ErrTaken = errors.New("the lease is taken")
	// ErrLoadTimeout is returned by Fetch where the loader took longer than Config.HardTimeout, or waited as long for its
	// turn: see Config.Loads. It matches context.DeadlineExceeded too.
	ErrLoadTimeout = fmt.Errorf("the loader took too long: %w", context.DeadlineExceeded)
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the cache is closed")

	// ErrSerialization is a value that the codec cannot write. Fetch returns the value all the same, and counts it, as Set does.
	ErrSerialization = errors.New("serialize value")
	// ErrRedisConnection is a Redis that is away, or refuses everybody.
	ErrRedisConnection = errors.New("redis is away")
	// ErrRedisTimeout is a Redis that did not answer within Config.Timeout.
	ErrRedisTimeout = errors.New("redis did not answer in time")
	// ErrRedisOutOfMemory is a Redis that stores nothing more: it is at maxmemory, and its policy evicts nothing.
	ErrRedisOutOfMemory = errors.New("redis is out of memory")
	// ErrNoRedis is returned where Config.Redis is nil and the call is about nothing else.
	ErrNoRedis = errors.New("no Redis is configured")

	// ErrInvalidationPartial is a Delete or DeleteTag after which some keys are known to be gone and others are not: see
	// InvalidationError.
	ErrInvalidationPartial = errors.New("some keys are gone, others may not be")
	// ErrInvalidationTimeout is a Delete or DeleteTag whose answer did not come in time, from Redis or by the caller's
	// deadline. Nothing is known then about the keys that the InvalidationError lists: they may be gone, may be there, and
	// may go later.
	ErrInvalidationTimeout = errors.New("it is not known in time whether the keys are gone")
	// ErrInvalidationPattern is why memory is empty after a message with a pattern that cannot be compiled: which values it
	// means is unknown, so none is kept. It shows in Healthy until memory opens again, and in the log.
	ErrInvalidationPattern = errors.New("a pattern of an invalidation cannot be compiled")
	// ErrMemoryOverflow is why memory keeps nothing while keys are invalidated faster than loads end: more evictions came
	// during each load than are remembered. It shows in the log where several values in a row were refused, and in Healthy
	// for ten seconds after the latest one.
	ErrMemoryOverflow = errors.New("memory keeps nothing: too many evictions come during a load")
	// ErrBehind is an outbox whose invalidation is behind by more than Memory.MaxBehind: what was
	// committed since may be stale, in Redis and in memory. It shows in Healthy and in the log.
	ErrBehind = errors.New("invalidation is behind")
)

// An InvalidationError says which keys of a Delete, or tags of a DeleteTag, are not known to be gone. It matches
// ErrInvalidationPartial where others are, ErrInvalidationTimeout where an answer did not come in time, and Redis' errors.
// Calling again with Keys is harmless.
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

// A PanicError is what Fetch returns where a loader panicked, or ended its goroutine by runtime.Goexit, as t.Fatal does.
type PanicError struct {
	Value any    // what was passed to panic, or an error that names runtime.Goexit
	Stack []byte // of the loader
}

func (e *PanicError) Error() string { return fmt.Sprintf("load panicked: %v\n%s", e.Value, e.Stack) }

// errGoexit is what a PanicError has where nothing was passed to panic.
var errGoexit = errors.New("runtime.Goexit was called, which is what t.Fatal does")

// panicked makes a PanicError of what recover has returned: nil after runtime.Goexit.
func panicked(value any) error {
	if value == nil {
		value = errGoexit
	}
	return &PanicError{value, debug.Stack()}
}

// awayReplies begin the replies of a server that serves nobody now.
var awayReplies = append([]string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH", "WRONGPASS", "NOREPLICAS", "ERR max number of clients"}, redirections...)

// redirections begin the replies of a server of a Cluster that has not run a command. A client returns one after as many as it
// follows, and it may not be the first answer to that command.
var redirections = []string{"MOVED ", "ASK ", "TRYAGAIN "}

// isReply reports whether a server has answered with err, and the command was not run by any.
func isReply(err error) bool {
	reply, answered := replyOf(err)
	return answered && !slices.ContainsFunc(redirections, func(prefix string) bool { return strings.HasPrefix(reply, prefix) })
}

// replyOf is the text of an error that a server has answered with.
func replyOf(err error) (text string, answered bool) {
	if err == nil {
		return "", false
	}
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.ErrClosed) {
		return "", false
	}
	return reply.Error(), true
}

// classify names a fault of Redis. It returns nil for what is an answer: none, or a refusal for the sake of one key.
func classify(err error) error {
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return nil
	case errors.Is(err, ErrRedisConnection), errors.Is(err, ErrRedisTimeout), errors.Is(err, ErrRedisOutOfMemory):
		return err
	}
	if reply, answered := replyOf(err); answered {
		for _, prefix := range awayReplies {
			if strings.HasPrefix(reply, prefix) {
				return fmt.Errorf("%w: %w", ErrRedisConnection, err)
			}
		}
		if strings.HasPrefix(reply, "OOM") {
			return fmt.Errorf("%w: %w", ErrRedisOutOfMemory, err)
		}
		return nil
	}
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("%w: %w", ErrRedisTimeout, err)
	}
	return fmt.Errorf("%w: %w", ErrRedisConnection, err)
}
