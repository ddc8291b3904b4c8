package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// TTLs of cached values, before jitter.
const (
	productTTL  = 10 * time.Minute
	listTTL     = 3 * time.Minute
	homeTTL     = 45 * time.Second
	shippingTTL = 15 * time.Minute
	couponTTL   = 5 * time.Minute
	ttlJitter   = 0.15 // either way; values that are filled together must not expire together
)

// An item is one cached value.
type item struct {
	key   string
	value string
	ttl   time.Duration
}

func jitter(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl) * (1 + ttlJitter*(2*rand.Float64()-1)))
}

// A filler acts as the shop's readers between two changes: it loads from MySQL and stores the
// results in Redis. Not safe for concurrent use.
type filler struct {
	shop  shop
	redis redis.UniversalClient
	names names
	keys  []string // all keys ever filled, in the order of the first fill
}

// fill stores the missing values, as readers would, and returns their number. It does not change
// existing values, right or wrong. With renew, their time to live starts again, so nothing expires
// while the demo looks for missing keys.
func (f *filler) fill(ctx context.Context, renew bool) (filled int, err error) {
	items, err := f.shop.load(ctx, f.names)
	if err != nil {
		return 0, err
	}
	if f.keys == nil { // before anything is stored: clear removes these
		for _, i := range items {
			f.keys = append(f.keys, i.key)
		}
	}
	var stored []*redis.BoolCmd
	_, err = f.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, i := range items {
			ttl := jitter(i.ttl)
			stored = append(stored, pipe.SetNX(ctx, i.key, i.value, ttl))
			if renew {
				pipe.PExpire(ctx, i.key, ttl)
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("fill redis: %w", err)
	}
	for _, s := range stored {
		if s.Val() {
			filled++
		}
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
	items, err := f.shop.load(ctx, f.names)
	if err != nil {
		return nil, err
	}
	for _, i := range items {
		switch value, err := f.redis.Get(ctx, i.key).Result(); {
		case err == redis.Nil: // no reader can get a stale value
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", i.key, err)
		case value != i.value:
			keys = append(keys, i.key)
		}
	}
	return keys, nil
}

// clear removes every key that fill ever stored.
func (f *filler) clear(ctx context.Context) error {
	_, err := f.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range f.keys {
			pipe.Unlink(ctx, key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove the demo's keys: %w", err)
	}
	return nil
}
