package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// raceLimit bounds the run with one kind of readers. A run takes a second; the limit is for a
// machine under load.
const raceLimit = time.Minute

// readerScenes are the scenes with readers.
type readerScenes struct{ p *player }

// raceReaders changes prices while readers load them: naive readers first, then readers of package
// cache. It leaves the shop, Redis and the subscription as they were.
func (s readerScenes) raceReaders(ctx context.Context) error {
	on := prices{s.p.demo.shop.db, s.p.demo.cache.redis}
	if s.p.demo.cfg.RedisURL != "" {
		s.p.demo.atClose(on.drop) // if a later step fails
	}
	s.p.demo.shop.db.SetMaxIdleConns(manyReaders + manyWriters)
	name := fmt.Sprintf("changing %d prices under load: first with naive readers, then with package cache", loadedPrices*changesEach)
	err := s.p.demo.steps.run(name, func() (string, error) {
		if err := s.race(ctx, "GET, SELECT, SET EX", naiveReader{on, s.p.demo.lifetimes[itemPage(firstPriced).Name()].Most}, on); err != nil {
			return "", err
		}
		r, err := newLeaseReader(s.p.demo, on)
		if err != nil {
			return "", err
		}
		err = s.race(ctx, "package cache", r, on)
		return "", errors.Join(err, r.close())
	})
	if err != nil {
		return err
	}
	s.judgeReaders(&s.p.report.Readers[0], &s.p.report.Readers[1])
	if err := s.countNines(ctx); err != nil {
		return fmt.Errorf("figures of the load: %w", err)
	}
	if err := s.forgetRow(ctx, on); err != nil {
		return err
	}
	if err := on.drop(ctx); err != nil {
		return err
	}
	return s.forgetHeard(ctx)
}

// race runs both parts with one kind of readers.
func (s readerScenes) race(ctx context.Context, name string, r reader, on prices) error {
	ctx, cancel := context.WithTimeoutCause(ctx, raceLimit, fmt.Errorf("not finished within %s", raceLimit))
	defer cancel()
	result := Readers{Name: name, Old: []OldPrice{}}
	err := on.reset(ctx)
	for _, play := range []func(context.Context, reader, prices, *Readers) error{s.arrange, s.load, s.findOld} {
		if err == nil {
			err = play(ctx, r, on, &result)
		}
	}
	if err != nil {
		return fmt.Errorf("readers with %s: %w", name, because(ctx, err))
	}
	s.p.report.Readers = append(s.p.report.Readers, result)
	return nil
}

// arrange runs the race step by step, so the outcome is certain:
//
//  1. A reader misses and selects the price.
//  2. The price changes and is committed. The worker unlinks the key and settles the row.
//  3. The reader continues.
func (s readerScenes) arrange(ctx context.Context, r reader, on prices, result *Readers) error {
	a := &result.Arranged
	a.Product = firstPriced
	var err error
	a.ReaderCents, err = r.price(ctx, a.Product, func() error {
		if err := on.change(ctx, a.Product, arrangedPrice); err != nil {
			return err
		}
		return s.awaitSettled(ctx)
	})
	if err != nil {
		return err
	}
	a.Refused = r.refused() == 1
	a.Outcome, err = s.outcome(ctx, r, on, a.Product)
	return err
}

// outcome returns the state of a price in MySQL and Redis.
func (s readerScenes) outcome(ctx context.Context, r reader, on prices, id int) (o Outcome, err error) {
	o.Product = id
	if o.MySQLCents, err = on.price(ctx, id); err != nil {
		return o, err
	}
	stored, ttl, err := s.stored(ctx, r, id)
	if err != nil {
		return o, err
	}
	if o.RedisCents = stored; stored != nil {
		o.RedisSeconds = int(ttl.Round(time.Second).Seconds())
	}
	o.NextCents, err = r.price(ctx, id, noRest)
	return o, err
}

// noRest does nothing. It is for a page that needs only the price.
func noRest() error { return nil }

// stored returns the price in Redis and its remaining TTL. The price is nil if there is none.
func (s readerScenes) stored(ctx context.Context, r reader, id int) (cents *int, ttl time.Duration, err error) {
	key := itemPage(id).Key()
	text, err := s.p.demo.cache.redis.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", key, err)
	}
	value, err := r.decode(text)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", key, err)
	}
	if ttl, err = s.p.demo.cache.redis.PTTL(ctx, key).Result(); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", key, err)
	}
	return &value, ttl, nil
}

// findOld compares Redis with MySQL after the load. Every row is settled, so the worker no longer
// repairs anything that is found here.
func (s readerScenes) findOld(ctx context.Context, r reader, on prices, result *Readers) error {
	right, err := on.all(ctx)
	if err != nil {
		return err
	}
	for id := firstPriced + 1; id <= lastPriced; id++ {
		cents, ttl, err := s.stored(ctx, r, id)
		if err != nil {
			return err
		}
		if cents != nil && *cents != right[id] {
			result.Old = append(result.Old, OldPrice{Product: id, MySQLCents: right[id], RedisCents: *cents, RedisSeconds: int(ttl.Round(time.Second).Seconds())})
		}
	}
	return nil
}

// awaitSettled waits until the worker has finished.
func (s readerScenes) awaitSettled(ctx context.Context) error {
	looks := time.NewTicker(settleInterval)
	defer looks.Stop()
	for {
		if settled, err := s.p.settled(ctx); settled || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.p.demo.ended:
			return workerEnded(err)
		case <-looks.C:
		}
	}
}

// forgetHeard drops the messages that the subscriber has received so far.
func (s readerScenes) forgetHeard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	text, err := s.p.demo.listener.fence(ctx)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case h := <-s.p.demo.listener.events:
			if h.err != nil {
				return fmt.Errorf("listen: %w", h.err)
			}
			if h.fence == text {
				return nil
			}
		}
	}
}

// judgeReaders reports unexpected results. Naive readers that keep no old price demonstrate no
// problem, and readers of package cache must keep none. The number of old prices after the load is
// left to chance.
func (s readerScenes) judgeReaders(naive, ours *Readers) {
	if a := naive.Arranged; !a.isStale() {
		s.p.fault("readers with %s kept no old price of product %d, so the race was not shown", naive.Name, a.Product)
	}
	a := ours.Arranged
	if a.RedisCents != nil && *a.RedisCents != a.MySQLCents {
		s.p.fault("readers with %s: Redis has %s for product %d, but MySQL has %s", ours.Name, money(*a.RedisCents), a.Product, money(a.MySQLCents))
	}
	if a.NextCents != a.MySQLCents {
		s.p.fault("readers with %s: the next reader got %s for product %d, but MySQL has %s", ours.Name, money(a.NextCents), a.Product, money(a.MySQLCents))
	}
	if !a.Refused {
		s.p.fault("readers with %s: the fill of product %d from before the change was not refused", ours.Name, a.Product)
	}
	for _, o := range ours.Old {
		s.p.fault("readers with %s: Redis has %s for product %d, but MySQL has %s", ours.Name, money(o.RedisCents), o.Product, money(o.MySQLCents))
	}
}
