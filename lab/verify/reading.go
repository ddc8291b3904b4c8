package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/lab/conform"
)

// together is how many keys one call of FetchMany reads.
const together = 8

// browse reads any key at the pace of the process: mostly with L1, sometimes without it, and
// sometimes several keys in one call.
func (r *reader) browse(ctx context.Context, dice *rand.Rand) {
	ticker := time.NewTicker(readerStep)
	defer ticker.Stop()
	begun, done := time.Now(), 0
	many := !r.Gets && (r.outside == nil || r.outside.ready.Many)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for due := min(int(time.Since(begun).Seconds()*float64(r.Reads)/browsers)-done, 1000); due > 0 && ctx.Err() == nil; {
			n := 1
			if many && dice.IntN(20) == 0 {
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
	var names []string
	for range together {
		if key := dice.IntN(r.Keys); r.kind(key) == item || r.kind(key) == held || r.kind(key) == list {
			names = append(names, r.name(key))
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 0 {
		return together
	}
	began := now()
	var values map[string]string
	var err error
	if r.outside != nil {
		values, _, err = r.outside.fetch(ctx, conform.Line{Type: conform.LineMany, Keys: names})
	} else {
		values, err = cache.FetchMany(ctx, r.cache, names, r.loader.loadMany, r.many)
	}
	if err != nil {
		r.findings.fail(ctx, err)
		return together
	}
	for _, name := range names {
		r.check(r.loader.keys[name], values[name], cache.FromRedis.String(), began)
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
	if r.outside != nil {
		return r.ask(ctx, key, "")
	}
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
		return r.check(key, value, r.count(answer{cache.FromRedis, false}), began)
	}
	got, err := cache.FetchResult(ctx, r.cache, r.name(key), load, policy)
	if err != nil {
		r.findings.fail(ctx, err)
		return 0, false
	}
	return r.check(key, got.Value, r.count(answer{got.Source, got.Stale}), began)
}

// An answer is where a value came from.
type answer struct {
	from    cache.Source
	expired bool
}

// count counts an answer, and returns its source for a finding.
func (r *reader) count(a answer) (from string) {
	switch {
	case a.expired:
		r.expired.Add(1)
		return "an expired value"
	case a.from == cache.FromMemory:
		r.memory.Add(1)
	case a.from == cache.FromRedis:
		r.redis.Add(1)
	default:
		r.loaded.Add(1)
	}
	return a.from.String()
}

// check checks the result of a read.
func (r *reader) check(key int, value, from string, began moment) (version uint64, ok bool) {
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

func (r *reader) find(key int, from string, f finding) {
	if r.outside != nil {
		from += " of " + r.outside.name
	}
	f.Key, f.Source, f.Process = r.name(key), from, r.Process
	r.findings.add(f)
}
