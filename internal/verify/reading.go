package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/cache"
)

// browse reads any key, by turns from memory and past it, at the process' pace.
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
		for due := min(int(time.Since(begun).Seconds()*float64(r.Reads)/browsers)-done, 1000); due > 0 && ctx.Err() == nil; due-- {
			r.read(ctx, dice.IntN(r.Keys), dice.IntN(2) == 0)
			done++
		}
	}
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
		if ctx.Err() == nil {
			r.errors.Add(1)
			r.mu.Lock()
			r.failure = err.Error()
			r.mu.Unlock()
		}
		return 0, false
	}
	r.reads.Add(1)
	switch got.Source {
	case cache.FromMemory:
		r.memory.Add(1)
	case cache.FromRedis:
		r.redis.Add(1)
	default:
		r.loaded.Add(1)
	}
	id, digits, _ := strings.Cut(got.Value, ":")
	version, err = strconv.ParseUint(digits, 10, 64)
	if err != nil || id != strconv.Itoa(r.id(key)) {
		r.find(key, got.Source, finding{Began: began, Wrong: fmt.Sprintf("the value is %q, of another key", got.Value)})
		return 0, false
	}
	v := r.table.judge(key, version, began, now(), r.Grace)
	if v.stale {
		r.stale.Add(1)
	}
	if v.excused {
		r.excused.Add(1)
	}
	if v.finding != nil {
		r.find(key, got.Source, *v.finding)
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
	value, err := r.value(ctx, key)
	if err != nil {
		return "", err
	}
	timer := time.NewTimer(slowness())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return value, nil
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

// slowness is for how long a loader holds back what it has read: mostly about as long as two commits of a key are apart.
func slowness() time.Duration {
	switch n := rand.IntN(100); {
	case n < 10:
		return 0
	case n < 94:
		return time.Duration(4000+rand.IntN(6000)) * time.Microsecond
	default:
		return time.Duration(8+rand.IntN(50)) * time.Millisecond
	}
}
