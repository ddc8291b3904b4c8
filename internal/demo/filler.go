package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// How long values may be served, before jitter.
const (
	productTTL  = 10 * time.Minute
	listTTL     = 3 * time.Minute
	homeTTL     = 45 * time.Second
	shippingTTL = 15 * time.Minute
	couponTTL   = 5 * time.Minute
	ttlJitter   = 0.15 // either way, so that what was filled together does not expire together
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

// A filler is what the shop's readers do between two changes: they load from MySQL and keep the result in Redis. One goroutine at a time.
type filler struct {
	shop  shop
	redis redis.UniversalClient
	names names
	keys  []string // all that were ever filled, in the order of the first fill
}

// fill stores what is missing, as readers would, and returns how many values that were. What is there stays as it is,
// right or wrong. With renew its time to live starts again, so that nothing expires while somebody looks for what is
// gone.
func (f *filler) fill(ctx context.Context, renew bool) (filled int, err error) {
	items, err := f.shop.load(ctx, f.names)
	if err != nil {
		return 0, err
	}
	if f.keys == nil { // before anything is stored, so that clear knows it
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

// missing returns those of keys that Redis does not have.
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

// stale returns the keys whose value is not what MySQL says now.
func (f *filler) stale(ctx context.Context) (keys []string, err error) {
	items, err := f.shop.load(ctx, f.names)
	if err != nil {
		return nil, err
	}
	for _, i := range items {
		switch value, err := f.redis.Get(ctx, i.key).Result(); {
		case err == redis.Nil: // nobody is served a stale value
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
