package cache

import (
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// elsewhereAfter is how long fields must be absent while workers report that they write them.
	elsewhereAfter = 3 * time.Second
	// listenPause is the wait between two short subscriptions.
	listenPause = time.Minute
)

// A misled notices a wrong server, database or source: no answer has a young field, but workers
// write elsewhere, or other workers write here. Safe for concurrent use.
type misled struct {
	// since when no answer has had a young field, as Unix nanoseconds; zero: the latest had one
	absent atomic.Int64
	still  atomic.Int64 // when the latest answer without one came
	heard  atomic.Pointer[heardWorker]
	others atomic.Pointer[[]string] // sources that the latest answer had instead
	told   atomic.Bool              // the log reports it
	counts *atomic.Uint64           // answers meanwhile

	// listen subscribes briefly. Nil: a subscription exists anyway.
	listen   func()
	listened atomic.Int64 // when it last began, as Unix nanoseconds
}

// A heardWorker is a worker whose heartbeat names the places where it writes fields.
type heardWorker struct {
	source string
	until  time.Time // when that is no longer known
}

// present records an answer from a server where workers write.
func (m *misled) present(a *aliveCheck) {
	if m.absent.Load() == 0 {
		return
	}
	m.absent.Store(0)
	if m.told.Swap(false) {
		a.logger.LogAttrs(a.life, slog.LevelInfo, "workers write to this server and database")
	}
}

// missing records an answer without a young field, if no better server is known.
func (m *misled) missing(a *aliveCheck, got aliveAnswer) {
	now := time.Now().UnixNano()
	m.absent.CompareAndSwap(0, now)
	m.still.Store(now)
	slices.Sort(got.others)
	m.others.Store(&got.others)
	if err := m.healthy(a.sources); err != nil {
		m.counts.Add(1)
		if !m.told.Swap(true) {
			a.logger.LogAttrs(a.life, slog.LevelError, "workers write elsewhere", slog.Any("error", err))
		}
	}
	if last := m.listened.Load(); m.listen != nil && m.lasts() && now-last >= int64(listenPause) && m.listened.CompareAndSwap(last, now) {
		m.listen()
	}
}

// lasts reports whether young fields have been absent for long enough.
func (m *misled) lasts() bool {
	absent := m.absent.Load()
	return absent != 0 && m.still.Load()-absent >= int64(elsewhereAfter)
}

// healthy returns an error if workers write elsewhere, or others here.
func (m *misled) healthy(sources []string) error {
	if !m.lasts() {
		return nil
	}
	found := ""
	if others := m.others.Load(); len(sources) > 0 && others != nil && len(*others) > 0 {
		found = fmt.Sprintf(" (found %q, expected %q)", *others, sources)
	}
	switch heard := m.heard.Load(); {
	case heard != nil && time.Now().Before(heard.until):
		return fmt.Errorf("%w: the workers of outbox %q write to another server or another database%s: compare the address and the database number with the worker's REDIS_URL",
			ErrRedisConnection, heard.source, found)
	case found != "":
		return fmt.Errorf("%w: no worker of the reader's outboxes writes to this server and database%s: compare Memory.Sources with outbox.Source", ErrRedisConnection, found)
	}
	return nil
}
