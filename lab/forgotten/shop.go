package forgotten

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/outbox"
)

// queries load the values of keys by the second part of the key. Each takes the third part.
var queries = map[string]string{
	"product":  "SELECT JSON_ARRAY(category_id, price) FROM products WHERE id = ? AND NOT deleted",
	"category": "SELECT COALESCE(GROUP_CONCAT(id ORDER BY id), '') FROM products WHERE category_id = ? AND NOT deleted",
	"stock":    "SELECT pieces FROM stock WHERE product_id = ?",
	"coupon":   "SELECT percent FROM coupons WHERE code = ?",
	"rate":     "SELECT cents FROM rates WHERE city = ?",
	"reviews":  "SELECT COUNT(*) FROM reviews WHERE product_id = ?",
}

// A shop is the tables, and the caches of its processes.
type shop struct {
	db      *sql.DB
	caches  []*cache.Cache
	clients []*redis.Client // of the caches
	keys    []string
	reads   []atomic.Int64 // by key
	// of each path: how many reads its key had when it was first loaded after the write; -1 before
	// the write, 0 before that load
	loaded []atomic.Int64
	errs   atomic.Pointer[error]
	wrote  atomic.Int64
}

// shopKeys returns the keys that clients read: those of the paths, and others.
func shopKeys() (keys []string) {
	for _, p := range Paths {
		keys = append(keys, p.key)
	}
	for id := 1000; id < 1200; id++ {
		keys = append(keys, fmt.Sprint("shop:product:", id))
	}
	for id := range 10 {
		keys = append(keys, fmt.Sprint("shop:category:", id))
	}
	return append(keys, "shop:rate:riyadh")
}

// policy returns the policy of a key. Every second product stays out of L1.
func policy(key string) *cache.Policy {
	o := cache.Options{TTL: 10 * time.Minute}
	kind, id := parts(key)
	if n, err := strconv.Atoi(id); kind == "product" && err == nil {
		o.SkipMemory = n%2 == 0
	}
	if kind == "category" {
		o.Tags = []string{"category-" + id}
	}
	return cache.MustPolicy(o)
}

func parts(key string) (kind, id string) {
	kind, id, _ = strings.Cut(strings.TrimPrefix(key, "shop:"), ":")
	return kind, id
}

// read reads keys through one cache until ctx ends, each as likely as any other.
func (s *shop) read(ctx context.Context, c *cache.Cache, dice *rand.Rand) {
	policies := make([]*cache.Policy, len(s.keys))
	for i, key := range s.keys {
		policies[i] = policy(key)
	}
	for ctx.Err() == nil {
		i := dice.IntN(len(s.keys))
		kind, id := parts(s.keys[i])
		_, err := cache.Fetch(ctx, c, s.keys[i], func(ctx context.Context) (value string, err error) {
			if i < len(Paths) {
				s.loaded[i].CompareAndSwap(0, s.reads[i].Load())
			}
			err = s.db.QueryRowContext(ctx, queries[kind], id).Scan(&value)
			return value, err
		}, policies[i])
		s.reads[i].Add(1)
		if err != nil && !errors.Is(err, cache.ErrNotFound) && ctx.Err() == nil {
			s.errs.Store(&err)
		}
	}
}

// write changes products with their rows until ctx ends.
func (s *shop) write(ctx context.Context, dice *rand.Rand, pause time.Duration) {
	for sleep.For(ctx, pause) == nil {
		id, to := 1000+dice.IntN(200), dice.IntN(10)
		err := outbox.InTx(ctx, s.db, func(tx *sql.Tx) error {
			from := 0
			if err := tx.QueryRowContext(ctx, "SELECT category_id FROM products WHERE id = ? FOR UPDATE", id).Scan(&from); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "UPDATE products SET category_id = ?, price = price + 1 WHERE id = ?", to, id); err != nil {
				return err
			}
			return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "product", ID: strconv.Itoa(id), Params: map[string]any{"category_id": []int{from, to}}})
		})
		if err != nil && ctx.Err() == nil {
			s.errs.Store(&err)
		}
		s.wrote.Add(1)
	}
}

// total returns how many reads there were of all keys.
func (s *shop) total() (n int64) {
	for i := range s.reads {
		n += s.reads[i].Load()
	}
	return n
}

// shadows returns the sum of the statistics of all caches.
func (s *shop) shadows() (sum cache.ShadowStatistics) {
	for _, c := range s.caches {
		one := c.Statistics().Shadow
		sum.Equal += one.Equal
		sum.Gone += one.Gone
		sum.Differs += one.Differs
		sum.NotDeterministic += one.NotDeterministic
		sum.Unknown += one.Unknown
	}
	return sum
}
