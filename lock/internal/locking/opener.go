// Package locking is the contract between package lock and the backends that keep its locks. A
// backend, such as lock.Redis, returns an [Opener], which opens a [Service] for each Locker.
//
// Package lock names the type Opener and nothing else of this package. Other modules therefore
// cannot make a backend.
package locking

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// ErrClosed is wrapped by the error of a call that comes after the Locker was closed.
var ErrClosed = errors.New("the locker is closed")

// A Config has the fields of lock.Config that backends use, with their defaults.
type Config struct {
	TTL     time.Duration
	Margin  time.Duration
	Timeout time.Duration
	Holder  string
	Logger  *slog.Logger
}

// An Opening tells a backend for whom it opens a Service.
type Opening struct {
	Config Config
	Life   context.Context // ends when the Locker is closed
	// runs f in a goroutine that Close waits for; reports false after Close
	Launch func(f func()) bool
}

// An Opener opens the services of one backend. The zero value opens none.
type Opener struct {
	open    func(o Opening) (Service, error)
	timeout func(ttl time.Duration) time.Duration
}

// NewOpener returns an Opener. open sends nothing. timeout returns the default of Config.Timeout.
// If it is nil, the default is 200 ms, or TTL/3 if that is less.
func NewOpener(open func(o Opening) (Service, error), timeout func(ttl time.Duration) time.Duration) Opener {
	return Opener{open, timeout}
}

// Open opens a Service. It is not a method, because package lock shows the type Opener.
func Open(opener Opener, o Opening) (Service, error) {
	if opener.open == nil {
		return nil, errors.New("the Backend has an empty Opener: use lock.Redis, lock.Redlock or zk.Backend")
	}
	return opener.open(o)
}

// Timeout returns the default of Config.Timeout.
func Timeout(opener Opener, ttl time.Duration) time.Duration {
	if opener.timeout == nil {
		return min(200*time.Millisecond, ttl/3)
	}
	return opener.timeout(ttl)
}
