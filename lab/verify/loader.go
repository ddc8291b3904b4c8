package verify

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
)

// A loader reads rows.
type loader struct {
	*spec
	db      *sql.DB
	client  redis.UniversalClient
	keys    map[string]int // by name
	commits []bell         // per key: it was written
	evicted []bell         // per key: the message of the worker arrived
}

// load reads the row, and delays before it returns it.
func (l *loader) load(ctx context.Context, key int) (string, error) {
	next := l.commits[key].next()
	value, err := l.value(ctx, key)
	if err != nil {
		return "", err
	}
	l.takeTime(ctx, key, next)
	return value, ctx.Err()
}

// loadMany reads the rows of several names, and delays before it returns them.
func (l *loader) loadMany(ctx context.Context, names []string) (map[string]string, error) {
	loaded := map[string]string{}
	for _, name := range names {
		value, err := l.value(ctx, l.keys[name])
		if err != nil {
			return nil, err
		}
		loaded[name] = value
	}
	sleep(ctx, quickly())
	return loaded, ctx.Err()
}

// value returns the row as text. A loader that adds a key to an index set does so before it reads.
func (l *loader) value(ctx context.Context, key int) (string, error) {
	if l.kind(key) == member {
		if err := l.client.SAdd(ctx, l.set(key), l.name(key)).Err(); err != nil {
			fill := cache.FillFrom(ctx)
			if fill == nil { // a client's, which must not store the value either
				return "", err
			}
			fill.Skip()
		}
	}
	version, err := l.version(ctx, key)
	return fmt.Sprintf("%d:%d", l.id(key), version), err
}

const selectVersion = "SELECT version FROM verify_rows WHERE id = ?"

func (l *loader) version(ctx context.Context, key int) (version uint64, err error) {
	if l.Plant == oldSnapshot {
		return l.snapshot(ctx, key)
	}
	err = l.db.QueryRowContext(ctx, selectVersion, l.id(key)).Scan(&version)
	return version, err
}

// takeTime delays the return of a loaded value, to make the load race: mostly until the key is
// committed again and unlinked, or about as long as that takes.
func (l *loader) takeTime(ctx context.Context, key int, next <-chan struct{}) {
	switch n := rand.IntN(100); {
	case n < 5:
		return
	case n == 99 && rand.IntN(50) == 0: // for longer than the margin of lease times
		sleep(ctx, time.Duration(1050+rand.IntN(400))*time.Millisecond)
		return
	case n < 8:
		sleep(ctx, time.Duration(8+rand.IntN(50))*time.Millisecond)
		return
	}
	limit := time.NewTimer(mostHeld)
	defer limit.Stop()
	select {
	case <-next:
	case <-limit.C:
		return
	case <-ctx.Done():
		return
	}
	if rand.IntN(8) > 0 { // mostly, since it blocks the reader for less time
		sleep(ctx, quickly())
		return
	}
	limit.Reset(2 * mostHeld)
	select {
	case <-l.evicted[key].next():
	case <-limit.C:
	case <-ctx.Done():
	}
}

// mostHeld bounds the wait of a load for a commit.
const mostHeld = 50 * time.Millisecond

// quickly returns about the time from a commit to its UNLINK, or slightly more.
func quickly() time.Duration { return time.Duration(6000+rand.IntN(12_000)) * time.Microsecond }
