package verify

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/cache"
)

// together is how many keys one call of FetchMany reads.
const together = 8

// browse reads any key, mostly from memory, sometimes past it and sometimes several in one call, at the process' pace.
func (r *reader) browse(ctx context.Context, dice *rand.Rand) {
	ticker := time.NewTicker(readerStep)
	defer ticker.Stop()
	begun, done := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for due := min(int(time.Since(begun).Seconds()*float64(r.Reads)/browsers)-done, 1000); due > 0 && ctx.Err() == nil; {
			n := 1
			if dice.IntN(20) == 0 {
				n = r.readMany(ctx, dice)
			} else {
				r.read(ctx, dice.IntN(r.Keys), dice.IntN(4) == 0)
			}
			due, done = due-n, done+n
		}
	}
}

// readMany reads some of the keys that have no tag and are in no index set, in one call, and returns how many it tried.
func (r *reader) readMany(ctx context.Context, dice *rand.Rand) int {
	keys := map[string]int{}
	for range together {
		if key := dice.IntN(r.Keys); r.kind(key) == item || r.kind(key) == list {
			keys[r.name(key)] = key
		}
	}
	began := now()
	values, err := cache.FetchMany(ctx, r.cache, slices.Collect(maps.Keys(keys)), func(ctx context.Context, names []string) (map[string]string, error) {
		loaded := map[string]string{}
		for _, name := range names {
			value, err := r.value(ctx, keys[name])
			if err != nil {
				return nil, err
			}
			loaded[name] = value
		}
		sleep(ctx, quickly())
		return loaded, ctx.Err()
	}, r.many)
	if err != nil {
		r.fail(ctx, err)
		return together
	}
	for name, key := range keys {
		r.check(key, values[name], cache.FromRedis, began)
	}
	return together
}

// listen hands what was committed to the followers, a key to one of them at a time.
func (r *reader) listen(ctx context.Context) {
	var keys []int
	last := r.table.news.next.Load()
	for ctx.Err() == nil {
		if keys, last = r.table.heard(last); len(keys) == 0 {
			time.Sleep(500 * time.Microsecond)
		}
		for _, key := range keys {
			r.commits[key].ring()
			if r.followed[key].CompareAndSwap(false, true) {
				select {
				case r.chase <- key:
				default: // all are busy
					r.followed[key].Store(false)
				}
			}
		}
	}
}

// follow reads a key that was committed until it has seen the latest version a few times in a row, by turns from memory and
// past it, or for two seconds.
func (r *reader) follow(ctx context.Context, dice *rand.Rand) {
	for {
		var key int
		select {
		case <-ctx.Done():
			return
		case key = <-r.chase:
		}
		began := time.Now()
		for seen := 0; seen < 4 && ctx.Err() == nil && time.Since(began) < 2*time.Second; {
			version, ok := r.read(ctx, key, seen%2 == 0)
			if ok && version >= r.table.rows[key].done.Load() {
				seen++
			} else {
				seen = 0
			}
			time.Sleep(time.Duration(300+dice.IntN(700)) * time.Microsecond)
		}
		r.followed[key].Store(false)
	}
}

// read reads a key and judges what it gets. It reports false where it got nothing.
func (r *reader) read(ctx context.Context, key int, direct bool) (version uint64, ok bool) {
	policy := r.policies[key]
	if direct {
		policy = r.direct[key]
	}
	return r.fetch(ctx, key, policy, func(ctx context.Context) (string, error) { return r.load(ctx, key) })
}

// fetch is read with a policy and a loader.
func (r *reader) fetch(ctx context.Context, key int, policy *cache.Policy, load cache.Loader[string]) (version uint64, ok bool) {
	began := now()
	got, err := cache.FetchResult(ctx, r.cache, r.name(key), load, policy)
	if err != nil {
		r.fail(ctx, err)
		return 0, false
	}
	switch got.Source {
	case cache.FromMemory:
		r.memory.Add(1)
	case cache.FromRedis:
		r.redis.Add(1)
	default:
		r.loaded.Add(1)
	}
	return r.check(key, got.Value, got.Source, began)
}

// fail notes that a read has got nothing.
func (r *reader) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	r.errors.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err.Error()
}

// check judges what a read has got.
func (r *reader) check(key int, value string, from cache.Source, began moment) (version uint64, ok bool) {
	r.reads.Add(1)
	id, digits, _ := strings.Cut(value, ":")
	version, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || id != strconv.Itoa(r.id(key)) {
		r.find(key, from, finding{Began: began, Wrong: fmt.Sprintf("the value is %q, of another key", value)})
		return 0, false
	}
	v := r.table.judge(r.Process, key, version, began, now(), r.Grace)
	if v.stale {
		r.stale.Add(1)
	}
	if v.excused {
		r.excused.Add(1)
	}
	if v.finding != nil {
		r.find(key, from, *v.finding)
	}
	return version, true
}

func (r *reader) find(key int, from cache.Source, f finding) {
	f.Key, f.Source, f.Process = r.name(key), from.String(), r.Process
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found) < mostTold {
		r.found = append(r.found, f)
	} else {
		r.missed.Add(1)
	}
}

// load reads the row, and takes its time before it returns it.
func (r *reader) load(ctx context.Context, key int) (string, error) {
	next := r.commits[key].next()
	value, err := r.value(ctx, key)
	if err != nil {
		return "", err
	}
	r.takeTime(ctx, key, next)
	return value, ctx.Err()
}

// value is the row as text. Whoever puts a key into an index set does so before it reads.
func (r *reader) value(ctx context.Context, key int) (string, error) {
	if r.kind(key) == member {
		if err := r.client.SAdd(ctx, r.set(key), r.name(key)).Err(); err != nil {
			cache.FillFrom(ctx).Skip()
		}
	}
	version, err := r.version(ctx, key)
	return fmt.Sprintf("%d:%d", r.id(key), version), err
}

const selectVersion = "SELECT version FROM verify_rows WHERE id = ?"

func (r *reader) version(ctx context.Context, key int) (version uint64, err error) {
	if r.Plant == oldSnapshot {
		return r.snapshot(ctx, key)
	}
	err = r.db.QueryRowContext(ctx, selectVersion, r.id(key)).Scan(&version)
	return version, err
}

// takeTime is for how long a loader holds back what it has read: mostly until the key is committed again and has been
// unlinked then, or about as long as that takes, so that the load is raced.
func (r *reader) takeTime(ctx context.Context, key int, next <-chan struct{}) {
	switch n := rand.IntN(100); {
	case n < 5:
		return
	case n == 99 && rand.IntN(50) == 0: // for longer than the margin of births
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
	if rand.IntN(8) > 0 { // mostly, since it keeps the reader for less time
		sleep(ctx, quickly())
		return
	}
	limit.Reset(2 * mostHeld)
	select {
	case <-r.evicted[key].next():
	case <-limit.C:
	case <-ctx.Done():
	}
}

// mostHeld is for how long a load waits for a commit.
const mostHeld = 50 * time.Millisecond

// quickly is about the time from a commit to its UNLINK, or somewhat more.
func quickly() time.Duration { return time.Duration(6000+rand.IntN(12_000)) * time.Microsecond }
