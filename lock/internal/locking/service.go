package locking

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"
)

// A Service keeps the locks of one Locker. Safe for concurrent use.
type Service interface {
	// Acquire makes one attempt, and sends it once. An attempt that arrives after the end of ctx,
	// or after Timeout, locks nothing. After an error the claim may have the lock, so it has to be
	// released. A claim that waits may get a place in a queue.
	Acquire(ctx context.Context, c Claim, wait bool) (Answer, error)
	// Extend reports whether the claim has the lock. If so, its lease begins again. Extend does not
	// take back a lock that has vanished.
	Extend(ctx context.Context, c Claim) (bool, error)
	// Release reports whether the claim had the lock. It does not have it afterwards.
	Release(ctx context.Context, c Claim) (bool, error)
	// Lapsed is called for a lost claim that was not released, Margin after its holder has given
	// up. The holder sends nothing more.
	Lapsed(c Claim)
	// Yields reports whether a claim that waits has to wait before it asks for the first time: its
	// process has just released the lock, and others have waited longer.
	Yields(c Claim) bool
	// Released returns a channel that is closed when it is worth asking again, or nil if the caller
	// has to rely on its own timing. Each name has one caller at a time, which calls done when it
	// no longer waits. done reports whether a release has woken this claim rather than another one.
	// Then the claim has to ask, or to call PassOn.
	Released(c Claim) (again <-chan struct{}, done func() (woken bool))
	// PassOn wakes another waiter instead of a claim that was woken, and has not asked since.
	PassOn(c Claim)
	// Close closes what the Service has opened. Other calls after it do not happen, or return an
	// error.
	Close()
}

// A Claim is one attempt to acquire a lock, and the holding of it.
type Claim struct {
	Name   string
	Token  Token
	Asked  time.Duration // when it was made, by [Now]: its lease is counted from then
	Waited bool          // it was told before that another claim has the lock
}

// A Token is 128 random bits, new for each claim. Tokens have no order: only equality counts.
type Token [16]byte

// NewToken returns a new Token.
func NewToken() (t Token) {
	_, _ = rand.Read(t[:]) // it never fails
	return t
}

func (t Token) String() string { return hex.EncodeToString(t[:]) }

// An Answer reports whether an attempt has the lock, and if not, who does.
type Answer struct {
	Acquired bool
	Queued   bool   // the claim keeps its place: ask again for the same one, or release it
	Token    string // of the holder, or the whole value if it is not of package lock
	// no reply came, and the claim may have the lock: give it back, and ask for another one
	Lost bool
	// no claim has the lock: several have a part of it each, and give it back
	Split  bool
	Holder string        // "" for a value that is not of package lock
	Since  time.Time     // by the backend's clock
	Held   time.Duration // likewise
	Left   time.Duration // of the holder's lease; below 0: unknown
}

// NotWoken reports that no release has woken the claim, for backends that do not know.
func NotWoken() bool { return false }
