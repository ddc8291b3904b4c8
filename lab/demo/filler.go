package demo

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/protocol"
)

// An item is one cached value.
type item struct {
	read  cache.Read
	value string
}

// A filler acts as the shop's readers between two changes: it loads from MySQL and stores the
// results in Redis, with package cache. Not safe for concurrent use.
type filler struct {
	shop      shop
	redis     redis.UniversalClient
	readers   *cache.Cache
	lifetimes lifetimes
	keys      []string // all keys ever filled, in the order of the first fill
}

// fill stores the missing values, as readers would, and returns their number. It does not change
// existing values, right or wrong. With renew, their time to live starts again, so nothing expires
// while the demo looks for missing keys.
func (f *filler) fill(ctx context.Context, renew bool) (filled int, err error) {
	items, err := f.shop.load(ctx)
	if err != nil {
		return 0, err
	}
	if f.keys == nil { // before anything is stored: clear removes these
		for _, i := range items {
			f.keys = append(f.keys, i.read.Key())
		}
	}
	for _, i := range items {
		_, err := cache.FetchRead(ctx, f.readers, i.read, func(context.Context) (string, error) {
			filled++
			return i.value, nil
		})
		if err != nil {
			return 0, fmt.Errorf("fill redis: %w", err)
		}
	}
	if !renew {
		return filled, nil
	}
	_, err = f.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, i := range items {
			pipe.PExpire(ctx, i.read.Key(), f.lifetimes.ttl(i.read))
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("renew what redis has: %w", err)
	}
	return filled, nil
}

// missing returns the keys that Redis does not have.
func (f *filler) missing(ctx context.Context, keys []string) (map[string]bool, error) {
	var replies []*redis.IntCmd
	_, err := f.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			replies = append(replies, pipe.Exists(ctx, key))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for keys: %w", err)
	}
	gone := map[string]bool{}
	for i, r := range replies {
		if r.Val() == 0 {
			gone[keys[i]] = true
		}
	}
	return gone, nil
}

// stale returns the keys whose value differs from MySQL.
func (f *filler) stale(ctx context.Context) (keys []string, err error) {
	items, err := f.shop.load(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range items {
		key := i.read.Key()
		text, err := f.redis.Get(ctx, key).Result()
		if err == redis.Nil { // no reader can get a stale value
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		if value, err := decodeEntry[string](text); err != nil || value != i.value {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// clear removes every key that fill ever stored.
func (f *filler) clear(ctx context.Context) error {
	_, err := f.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range f.keys {
			pipe.Unlink(ctx, key)
			if lease, ok := protocol.LeaseKey(key); ok {
				pipe.Unlink(ctx, lease)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove the demo's keys: %w", err)
	}
	return nil
}
