package cache

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// unlinksKept is how many keys' unlink times are remembered.
	unlinksKept = 8192
	// unlinkMargin allows for masters with different clocks: see docs/protocol.md.
	unlinkMargin = time.Second
	// confirmPeriods is how many periods after a first old entry a message must arrive to confirm
	// it.
	confirmPeriods = 10
	// confirmedWithin is for how long a first old entry waits for that.
	confirmedWithin = 10 * time.Minute
	// elsewhereShown is for how long Healthy reports the latest one.
	elsewhereShown = 5 * time.Minute
)

// An unlinkWatch finds proof that workers unlink keys elsewhere. A worker publishes a key after it
// has unlinked it, with an earlier time of Redis (u). From then on, Redis holds no entry of the key
// whose lease is older, unless the worker uses another server or database.
//
// A failover to a replica that is behind, or a restart from a snapshot, also restores old entries
// until workers have unlinked them again. So one old entry is only counted. It is reported if an
// old entry is read again after a message that arrived ten periods later. Messages from before a
// possible gap, for example a lost subscription, prove nothing. Safe for concurrent use.
type unlinkWatch struct {
	confirm time.Duration
	logger  *slog.Logger
	seed    maphash.Seed
	total   atomic.Uint64 // old entries
	some    atomic.Bool   // a message had an unlink time

	mu     sync.Mutex
	keys   []unlinkedKey // by hash; nil before the first
	first  time.Time     // an old entry to confirm
	latest time.Time     // one that was
	told   bool
}

// An unlinkedKey is a key of a message.
type unlinkedKey struct {
	hash, doubts uint64
	at           uint64    // the memory's number of the next eviction
	unlinked     int64     // in microseconds, by the clock of Redis
	heard        time.Time // when the message arrived
}

func newUnlinkWatch(config Config) unlinkWatch {
	return unlinkWatch{confirm: confirmPeriods * config.Memory.Period, logger: config.Logger, seed: maphash.MakeSeed()}
}

func (u *unlinkWatch) slot(name string) (hash uint64, slot *unlinkedKey) {
	hash = maphash.String(u.seed, name)
	return hash, &u.keys[hash%unlinksKept]
}

// note remembers when the keys of a message were unlinked, with a mark from after their eviction.
func (u *unlinkWatch) note(a *arrival, since mark) {
	keys := a.message.Keys
	if a.message.Unlinked == 0 || a.rejected != nil || len(keys) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.keys == nil {
		u.keys = make([]unlinkedKey, unlinksKept)
	}
	for _, name := range keys {
		hash, slot := u.slot(name)
		*slot = unlinkedKey{hash, since.doubts, since.at, int64(a.message.Unlinked), a.at}
	}
	u.some.Store(true)
}

// checkBirth checks whether an entry should have been unlinked before it was read, with a mark from
// before the read.
func (u *unlinkWatch) checkBirth(name string, birth int64, since mark) {
	if birth == 0 || since.open == 0 || !u.some.Load() {
		return
	}
	if err := u.check(name, birth, since, time.Now()); err != nil {
		u.logger.LogAttrs(context.Background(), slog.LevelError, "workers unlink keys elsewhere", slog.String("key", name), slog.Any("error", err))
	}
}

// check is like checkBirth, at a given time. It returns an error to log.
func (u *unlinkWatch) check(name string, birth int64, since mark, now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	hash, slot := u.slot(name)
	old := slot.hash == hash && slot.at <= since.at && slot.doubts == since.doubts && birth+unlinkMargin.Microseconds() < slot.unlinked
	if !old {
		return nil
	}
	u.total.Add(1)
	switch {
	case u.first.IsZero() || now.Sub(u.first) > confirmedWithin && now.Sub(u.latest) > elsewhereShown:
		u.first = now
	case slot.heard.Sub(u.first) > u.confirm:
		u.latest = now
		if !u.told {
			u.told = true
			return ErrUnlinkedElsewhere
		}
	}
	return nil
}

// healthy returns ErrUnlinkedElsewhere for a while after the latest confirmed old entry.
func (u *unlinkWatch) healthy(now time.Time) error {
	if !u.some.Load() {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.latest.IsZero() && now.Sub(u.latest) < elsewhereShown {
		return ErrUnlinkedElsewhere
	}
	return nil
}
