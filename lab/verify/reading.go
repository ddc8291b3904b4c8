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

// browse reads any key at the pace of the process: mostly with L1, sometimes without it, and
// sometimes several keys in one call.
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
			if !r.Gets && dice.IntN(20) == 0 {
				n = r.readMany(ctx, dice)
			} else {
				r.read(ctx, dice.IntN(r.Keys), dice.IntN(4) == 0)
			}
			due, done = due-n, done+n
		}
	}
}

// readMany reads some of the keys that have no tag and are in no index set, in one call, and
// returns how many it tried.
func (r *reader) readMany(ctx context.Context, dice *rand.Rand) int {
	keys := map[string]int{}
	for range together {
		if key := dice.IntN(r.Keys); r.kind(key) == item || r.kind(key) == held || r.kind(key) == list {
			keys[r.name(key)] = key
		}
	}
	began := now()
	values, err := cache.FetchMany(ctx, r.cache, slices.Collect(maps.Keys(keys)), func(ctx context.Context, names []string) (map[string]string, error) {
		loaded := map[string]string{}
		for _, name := range names {
			value, err := r.loader.value(ctx, keys[name])
			if err != nil {
				return nil, err
			}
			loaded[name] = value
		}
		sleep(ctx, quickly())
		return loaded, ctx.Err()
	}, r.many)
	if err != nil {
		r.findings.fail(ctx, err)
		return together
	}
	for name, key := range keys {
		r.check(key, values[name], cache.FromRedis, began)
	}
	return together
}

// listen hands committed keys to the followers, each key to one follower at a time.
func (r *reader) listen(ctx context.Context) {
	var keys []int
	last := r.table.news.next.Load()
	for ctx.Err() == nil {
		if keys, last = r.table.heard(last); len(keys) == 0 {
			time.Sleep(500 * time.Microsecond)
		}
		for _, key := range keys {
			r.loader.commits[key].ring()
			if r.followed[key].CompareAndSwap(false, true) {
				select {
				case r.chase <- key:
				default: // all followers are busy
					r.followed[key].Store(false)
				}
			}
		}
	}
}

// follow reads a committed key alternately with and without L1, until it has seen the latest
// version a few times in a row, or for two seconds.
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

// read reads a key and checks the result. It returns false if the read failed.
func (r *reader) read(ctx context.Context, key int, direct bool) (version uint64, ok bool) {
	policy := r.policies[key]
	if direct {
		policy = r.direct[key]
	}
	return r.fetch(ctx, key, policy, func(ctx context.Context) (string, error) { return r.loader.load(ctx, key) })
}

// fetch implements read with a policy and a loader.
func (r *reader) fetch(ctx context.Context, key int, policy *cache.Policy, load cache.Loader[string]) (version uint64, ok bool) {
	began := now()
	if r.Gets {
		value, err := cache.Get[string](ctx, r.cache, r.name(key))
		if err != nil { // nothing usable, which is no read
			return 0, false
		}
		r.redis.Add(1)
		return r.check(key, value, cache.FromRedis, began)
	}
	got, err := cache.FetchResult(ctx, r.cache, r.name(key), load, policy)
	if err != nil {
		r.findings.fail(ctx, err)
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

// check checks the result of a read.
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
	r.findings.add(f)
}
