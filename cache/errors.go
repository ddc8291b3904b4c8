package cache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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
	// ErrLoadTimeout is returned by Fetch where the loader took longer than Config.HardTimeout. It matches
	// context.DeadlineExceeded too.
	ErrLoadTimeout = fmt.Errorf("the loader took too long: %w", context.DeadlineExceeded)
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the cache is closed")

	// ErrSerialization is a value that the codec cannot write. Fetch returns the value all the same, and counts it.
	ErrSerialization = errors.New("serialize value")
	// ErrRedisConnection is a Redis that is away, or refuses everybody.
	ErrRedisConnection = errors.New("redis is away")
	// ErrRedisTimeout is a Redis that did not answer within Config.Timeout.
	ErrRedisTimeout = errors.New("redis did not answer in time")
	// ErrRedisOutOfMemory is a Redis that stores nothing more: it is at maxmemory, and its policy evicts nothing.
	ErrRedisOutOfMemory = errors.New("redis is out of memory")
	// ErrNoRedis is returned where Config.Redis is nil and the call is about nothing else.
	ErrNoRedis = errors.New("no Redis is configured")
)

// A PanicError is what Fetch returns where a loader panicked.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the loader
}

func (e *PanicError) Error() string { return fmt.Sprintf("load panicked: %v\n%s", e.Value, e.Stack) }

// awayReplies begin the replies of a server that serves nobody now.
var awayReplies = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH", "WRONGPASS", "NOREPLICAS", "ERR max number of clients"}

// classify names a fault of Redis. It returns nil for what is an answer: none, or a refusal for the sake of one key.
func classify(err error) error {
	var reply redis.Error
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return nil
	case errors.Is(err, ErrRedisConnection), errors.Is(err, ErrRedisTimeout):
		return err
	case errors.As(err, &reply) && !errors.Is(err, redis.ErrClosed):
		for _, prefix := range awayReplies {
			if strings.HasPrefix(reply.Error(), prefix) {
				return fmt.Errorf("%w: %w", ErrRedisConnection, err)
			}
		}
		if strings.HasPrefix(reply.Error(), "OOM") {
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
