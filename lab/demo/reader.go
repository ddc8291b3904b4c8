package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
)

// A reader shows the price of a product, from Redis or from MySQL. Safe for concurrent use.
type reader interface {
	// price returns the price that a customer sees. It calls rest after its SELECT, for the other
	// queries of a page.
	price(ctx context.Context, id int, rest func() error) (cents int, err error)
	// decode returns the price in a value that the reader stored.
	decode(text string) (cents int, err error)
	// refused counts the values that were loaded but not stored, because the key was unlinked
	// meanwhile.
	refused() uint64
	close() error
}

// A naiveReader implements cache-aside in the usual way: GET, SELECT, SET with a TTL.
type naiveReader struct {
	prices
	ttl time.Duration
}

func (r naiveReader) price(ctx context.Context, id int, rest func() error) (int, error) {
	key := itemPage(id).Key()
	cents, err := r.redis.Get(ctx, key).Int()
	if !errors.Is(err, redis.Nil) {
		return cents, err
	}
	if cents, err = r.prices.price(ctx, id); err != nil {
		return 0, err
	}
	if err := rest(); err != nil {
		return 0, err
	}
	return cents, r.redis.Set(ctx, key, cents, r.ttl).Err()
}

func (naiveReader) decode(text string) (int, error) { return strconv.Atoi(text) }
func (naiveReader) refused() uint64                 { return 0 }
func (naiveReader) close() error                    { return nil }

// A leaseReader does the same with package cache.
type leaseReader struct {
	prices
	cache *cache.Cache
}

func newLeaseReader(d *Demo, p prices) (reader, error) {
	c, err := d.newCache(p.redis)
	return leaseReader{p, c}, err
}

// newCache returns the readers' cache. Its timeout for Redis is the demo's, which allows for a busy
// machine.
func (d *Demo) newCache(on redis.UniversalClient) (*cache.Cache, error) {
	return cache.New(cache.Config{Redis: on, Lease: d.m.Lease(), Timeout: answerLimit, Logger: d.cfg.Logger})
}

func (r leaseReader) price(ctx context.Context, id int, rest func() error) (int, error) {
	return cache.FetchRead(ctx, r.cache, itemPage(id), func(ctx context.Context) (int, error) {
		cents, err := r.prices.price(ctx, id)
		if err != nil {
			return 0, err
		}
		return cents, rest()
	})
}

func (leaseReader) decode(text string) (int, error) { return decodeEntry[int](text) }

// decodeEntry returns the value of an entry. It does not use package cache, which the demo tests.
func decodeEntry[V any](text string) (value V, err error) {
	var entry struct {
		V *V `json:"v"`
	}
	if err := json.Unmarshal([]byte(text), &entry); err != nil {
		return value, err
	}
	if entry.V == nil {
		return value, fmt.Errorf("%s has no value", text)
	}
	return *entry.V, nil
}

func (r leaseReader) refused() uint64 { return r.cache.Statistics().Refused }
func (r leaseReader) close() error    { return r.cache.Close() }
