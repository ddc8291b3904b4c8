package cache

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// FetchRead is like Fetch, with the key and the policy of a generated function:
//
//	page, err := cache.FetchRead(ctx, c, shopcache.ProductPage(42), load)
//
// The key is the whole key in Redis. If Config.Prefix is set, the key must begin with it. If it
// does not, or if Read.Err is not nil, no invalidation would reach the value. FetchRead then calls
// load and caches nothing, counts this in Statistics.Reads, and logs the reason at most once per
// minute.
func FetchRead[T any](ctx context.Context, c *Cache, read Read, load Loader[T]) (T, error) {
	result, err := FetchReadResult(ctx, c, read, load)
	return result.Value, err
}

// FetchReadResult is like FetchRead, and also returns the source of the value.
func FetchReadResult[T any](ctx context.Context, c *Cache, read Read, load Loader[T]) (Result[T], error) {
	key, err := c.keyOf(read)
	if err != nil {
		c.reads.refused(c.config.Logger, read, err)
		value, err := load(ctx)
		return Result[T]{Value: value, Source: FromLoader}, c.asNotFound(err)
	}
	return FetchResult(ctx, c, key, load, read.policy)
}

// keyOf returns the key of a read without the prefix.
func (c *Cache) keyOf(read Read) (string, error) {
	if read.err != nil {
		return "", read.err
	}
	key, ok := strings.CutPrefix(read.key, c.config.Prefix)
	if !ok {
		return "", fmt.Errorf("the key %q of the read %s does not begin with Config.Prefix %q", read.key, read.Name(), c.config.Prefix)
	}
	return key, nil
}

// readCounts counts by entry of the section reads. Its size is bounded by the number of entries in
// generated code.
type readCounts struct {
	all    sync.Map // *ReadEntry to *readCount
	told   atomic.Int64
	others otherKeys
}

// readBounds are the upper bounds of the buckets of latencies, in seconds.
var readBounds = [...]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// A readCount counts the calls for one entry.
type readCount struct {
	l1, l2, misses, stale, errors, evicted, refused atomic.Uint64
	// buckets counts the calls that L1 did not answer, by latency. The last one has no bound.
	buckets [len(readBounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

// of returns the count of the entry of a policy, and nil for a policy of no entry.
func (r *readCounts) of(p *Policy) *readCount {
	if p.read == nil {
		return nil
	}
	if n, ok := r.all.Load(p.read); ok {
		return n.(*readCount)
	}
	r.others.on.Store(true)
	n, _ := r.all.LoadOrStore(p.read, &readCount{})
	return n.(*readCount)
}

func (n *readCount) hit() {
	if n != nil {
		n.l1.Add(1)
	}
}

// evict counts a value that left L1 because L1 was full.
func (n *readCount) evict() {
	if n != nil {
		n.evicted.Add(1)
	}
}

// answered counts a call that L1 did not answer.
func (n *readCount) answered(source Source, stale bool, err error, took time.Duration) {
	switch {
	case err != nil && !isNotFound(err):
		n.errors.Add(1)
	case source == FromLoader:
		n.misses.Add(1)
	default:
		n.l2.Add(1)
	}
	if stale {
		n.stale.Add(1)
	}
	bucket := 0
	for bucket < len(readBounds) && took.Seconds() > readBounds[bucket] {
		bucket++
	}
	n.buckets[bucket].Add(1)
	n.nanos.Add(int64(took))
}

// refused counts a call whose value must not be cached, and logs the reason.
func (r *readCounts) refused(logger *slog.Logger, read Read, err error) {
	r.of(read.policy).refused.Add(1)
	now, last := time.Now().Unix(), r.told.Load()
	if now-last >= 60 && r.told.CompareAndSwap(last, now) {
		logger.Error("value is loaded and not cached: no invalidation reaches it", "read", read.Name(), "error", err)
	}
}

// ReadStatistics counts the calls for one entry of the section reads since New. Fetch, FetchResult,
// and FetchRead count; FetchMany and Warm do not.
type ReadStatistics struct {
	L1Hits uint64 `json:"l1Hits"` // from L1
	L2Hits uint64 `json:"l2Hits"` // from Redis
	Misses uint64 `json:"misses"` // loaded by this caller or another one
	Stale  uint64 `json:"stale"`  // expired values among these
	Errors uint64 `json:"errors"` // calls that returned an error other than ErrNotFound
	// values that L1 dropped because it was full
	L1Evictions uint64 `json:"l1Evictions"`
	// calls that were loaded and not cached: see FetchRead
	Refused uint64 `json:"refused"`
	// Latencies of the calls that L1 did not answer: the number of calls up to each bound of
	// LatencyBounds, and of all. Seconds is their sum.
	Latencies []uint64 `json:"latencies"`
	Seconds   float64  `json:"seconds"`
}

// LatencyBounds returns the upper bounds of ReadStatistics.Latencies in seconds, except the last
// one, which has no bound.
func LatencyBounds() []float64 { return append([]float64(nil), readBounds[:]...) }

// statistics returns the counts by name, and the fingerprints of the maps of the reads.
func (r *readCounts) statistics() (all map[string]ReadStatistics, versions []string) {
	r.all.Range(func(key, value any) bool {
		e, n := key.(*ReadEntry), value.(*readCount)
		s := ReadStatistics{
			L1Hits: n.l1.Load(), L2Hits: n.l2.Load(), Misses: n.misses.Load(), Stale: n.stale.Load(), Errors: n.errors.Load(),
			L1Evictions: n.evicted.Load(), Refused: n.refused.Load(), Seconds: time.Duration(n.nanos.Load()).Seconds(),
		}
		var sum uint64
		for i := range n.buckets {
			sum += n.buckets[i].Load()
			s.Latencies = append(s.Latencies, sum)
		}
		if all == nil {
			all = map[string]ReadStatistics{}
		}
		if other, ok := all[e.name]; ok { // of another map
			s.add(other)
		}
		all[e.name] = s
		return true
	})
	return all, r.versions()
}

// versions returns the fingerprints of the maps of all entries that were fetched, sorted.
func (r *readCounts) versions() (all []string) {
	if r == nil {
		return nil
	}
	r.all.Range(func(key, _ any) bool {
		if v := key.(*ReadEntry).m.Version(); v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
		return true
	})
	slices.Sort(all)
	return all
}

// add adds the counts of an entry of the same name.
func (s *ReadStatistics) add(o ReadStatistics) {
	s.L1Hits += o.L1Hits
	s.L2Hits += o.L2Hits
	s.Misses += o.Misses
	s.Stale += o.Stale
	s.Errors += o.Errors
	s.L1Evictions += o.L1Evictions
	s.Refused += o.Refused
	s.Seconds += o.Seconds
	for i, n := range o.Latencies {
		s.Latencies[i] += n
	}
}
