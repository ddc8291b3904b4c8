package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Backend keeps locks: [Redis], [Redlock] or [ZooKeeper]. Only this package makes them.
type Backend interface {
	// open makes the service of one Locker. It sends nothing.
	open(config Config, launch func(func()) bool) (service, error)
	// timeout is what Config.Timeout is by default.
	timeout(ttl time.Duration) time.Duration
}

// A service is a Backend at work. Safe for concurrent use.
type service interface {
	// acquire makes one attempt, and sends it once. One that arrives after the end of ctx, or after Timeout, locks nothing. After
	// an error the lock may be had, so it has to be released. A claim that waits may be given a place in a queue.
	acquire(ctx context.Context, c claim, wait bool) (answer, error)
	// extend reports whether the lock is the claim's; then its lease begins anew. It takes nothing that has vanished.
	extend(ctx context.Context, c claim) (bool, error)
	// release reports whether the lock was the claim's; it is not, afterwards.
	release(ctx context.Context, c claim) (bool, error)
	// lapsed hears of a claim whose holder has given up, Margin later: it has not released the lock, and asks no more.
	lapsed(c claim)
	// released returns a channel that is closed when it is worth asking again, or nil if the caller has to rely on its own
	// timing. One caller at a time for each name, which calls done when it waits no longer. That reports whether a release has
	// woken this claim rather than another one, which is then the claim's to ask, or to passOn.
	released(c claim) (again <-chan struct{}, done func() (woken bool))
	// passOn wakes another waiter in the place of a claim that was woken, and has not asked since.
	passOn(c claim)
	// close ends what the service has opened. Nothing else is called then, or returns an error.
	close()
}

// A claim is one attempt to acquire a lock, and the holding of it.
type claim struct {
	name   string
	token  token
	asked  time.Duration // when it was made, by now(): its lease is counted from then
	waited bool          // was told that somebody has the lock
}

// A token is 128 random bits, new for each claim. Tokens have no order: only equality counts.
type token [16]byte

func newToken() (t token) {
	_, _ = rand.Read(t[:]) // it never fails
	return t
}

func (t token) String() string { return hex.EncodeToString(t[:]) }

// An answer tells whether an attempt has the lock, and if not, who does.
type answer struct {
	acquired bool
	queued   bool          // the claim keeps its place: ask again for the same one, or release it
	token    string        // of the holder, or the whole value that is not this package's
	lost     bool          // no answer came, and the claim may have the lock: give it back, and ask for another one
	split    bool          // nobody has the lock: some who try at once have a part of it each, and give it back
	holder   string        // "" for a value that is not this package's
	since    time.Time     // by the backend's clock
	held     time.Duration // likewise
	left     time.Duration // of the holder's lease; below 0: unknown
}

// MaxName is the length of a lock's name at most, in bytes.
const MaxName = 255

// checkName refuses what the backends cannot tell apart.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("the name of the lock is empty")
	case len(name) > MaxName:
		return fmt.Errorf("the name of the lock has %d bytes, %d at most are possible", len(name), MaxName)
	case strings.ContainsAny(name, "{}"):
		return fmt.Errorf("the name of the lock, %q, has a brace, by which Redis Cluster would tell its slot", name)
	}
	return nil
}
