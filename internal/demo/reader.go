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

// priceTTL is how long both readers keep a price, before jitter: that of cache.Moderate.
const priceTTL = 30 * time.Minute

// A reader shows the price of a product, from Redis or else from MySQL. Safe for concurrent use.
type reader interface {
	// price is what a customer gets to see. After a SELECT comes rest, which is what else a page needs.
	price(ctx context.Context, id int, rest func() error) (cents int, err error)
	// decode reads the price in what the reader has stored.
	decode(text string) (cents int, err error)
	// refused counts what was loaded and not stored, because the key was unlinked meanwhile.
	refused() uint64
	close() error
}

// A naiveReader is cache-aside as it is usually written: GET, SELECT, SET with a TTL.
type naiveReader struct{ prices }

func (r naiveReader) price(ctx context.Context, id int, rest func() error) (int, error) {
	key := r.names.product(id)
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
	return cents, r.redis.Set(ctx, key, cents, priceTTL).Err()
}

func (naiveReader) decode(text string) (int, error) { return strconv.Atoi(text) }
func (naiveReader) refused() uint64                 { return 0 }
func (naiveReader) close() error                    { return nil }

// A leaseReader does the same with package cache.
type leaseReader struct {
	prices
	cache *cache.Cache
}

// newLeaseReader waits for Redis as long as the rest of the demo does, on a machine that may be busy.
func newLeaseReader(d *Demo, p prices) (reader, error) {
	c, err := cache.New(cache.Config{
		Redis: p.redis, Prefix: string(p.names), Lease: d.m.Lease(), Timeout: answerLimit, Logger: d.cfg.Log,
	})
	return leaseReader{p, c}, err
}

func (r leaseReader) price(ctx context.Context, id int, rest func() error) (int, error) {
	return cache.Fetch(ctx, r.cache, "product:"+strconv.Itoa(id), func(ctx context.Context) (int, error) {
		cents, err := r.prices.price(ctx, id)
		if err != nil {
			return 0, err
		}
		return cents, rest()
	}, cache.Moderate)
}

// decode does not ask package cache, which is on trial.
func (leaseReader) decode(text string) (int, error) {
	var entry struct {
		V *int `json:"v"`
	}
	if err := json.Unmarshal([]byte(text), &entry); err != nil {
		return 0, err
	}
	if entry.V == nil {
		return 0, fmt.Errorf("%s holds no price", text)
	}
	return *entry.V, nil
}

func (r leaseReader) refused() uint64 { return r.cache.Statistics().Refused }
func (r leaseReader) close() error    { return r.cache.Close() }
