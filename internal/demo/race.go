package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// raceLimit bounds what is played with one kind of readers. It takes a second; the limit is for a machine under load.
const raceLimit = time.Minute

// raceReaders plays price changes under readers that load meanwhile: naive ones first, then those of package cache. It
// leaves the shop, Redis and the subscription as they were.
func (p *player) raceReaders(ctx context.Context) error {
	on := prices{p.shop.db, p.cache.redis, p.names}
	if p.cfg.RedisURL != "" {
		p.atClose(on.drop) // where something fails below
	}
	p.shop.db.SetMaxIdleConns(manyReaders + manyWriters)
	name := fmt.Sprintf("changing %d prices while naive readers load, then the same with package cache", loadedPrices*changesEach)
	err := p.steps.run(name, func() (string, error) {
		if err := p.race(ctx, "GET, SELECT, SET EX", naiveReader{on}, on); err != nil {
			return "", err
		}
		r, err := newLeaseReader(p.Demo, on)
		if err != nil {
			return "", err
		}
		err = p.race(ctx, "package cache", r, on)
		return "", errors.Join(err, r.close())
	})
	if err != nil {
		return err
	}
	p.judgeReaders(&p.report.Readers[0], &p.report.Readers[1])
	if err := p.forgetRow(ctx, on); err != nil {
		return err
	}
	if err := on.drop(ctx); err != nil {
		return err
	}
	return p.forgetHeard(ctx)
}

// race plays with one kind of readers.
func (p *player) race(ctx context.Context, name string, r reader, on prices) error {
	ctx, cancel := context.WithTimeoutCause(ctx, raceLimit, fmt.Errorf("not through within %s", raceLimit))
	defer cancel()
	result := Readers{Name: name, Old: []OldPrice{}}
	err := on.reset(ctx)
	for _, play := range []func(context.Context, reader, prices, *Readers) error{p.arrange, p.load, p.findOld} {
		if err == nil {
			err = play(ctx, r, on, &result)
		}
	}
	if err != nil {
		return fmt.Errorf("readers with %s: %w", name, because(ctx, err))
	}
	p.report.Readers = append(p.report.Readers, result)
	return nil
}

// arrange plays the race step by step, so that it happens for certain: a reader misses and selects the price; then it is
// changed and committed, and the worker unlinks the key and settles the row; then the reader goes on.
func (p *player) arrange(ctx context.Context, r reader, on prices, result *Readers) error {
	a := &result.Arranged
	a.Product = firstPriced
	var err error
	a.ReaderCents, err = r.price(ctx, a.Product, func() error {
		if err := on.change(ctx, a.Product, arrangedPrice); err != nil {
			return err
		}
		return p.awaitSettled(ctx)
	})
	if err != nil {
		return err
	}
	a.Refused = r.refused() == 1
	a.Outcome, err = p.outcome(ctx, r, on, a.Product)
	return err
}

// outcome looks at a price.
func (p *player) outcome(ctx context.Context, r reader, on prices, id int) (o Outcome, err error) {
	o.Product = id
	if o.MySQLCents, err = on.price(ctx, id); err != nil {
		return o, err
	}
	stored, ttl, err := p.stored(ctx, r, id)
	if err != nil {
		return o, err
	}
	if o.RedisCents = stored; stored != nil {
		o.RedisSeconds = int(ttl.Round(time.Second).Seconds())
	}
	o.NextCents, err = r.price(ctx, id, noRest)
	return o, err
}

// noRest is for a page that needs nothing else.
func noRest() error { return nil }

// stored is the price that Redis has, nil without one, and for how long.
func (p *player) stored(ctx context.Context, r reader, id int) (cents *int, ttl time.Duration, err error) {
	key := p.names.product(id)
	text, err := p.cache.redis.Get(ctx, key).Result()
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
	if ttl, err = p.cache.redis.PTTL(ctx, key).Result(); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", key, err)
	}
	return &value, ttl, nil
}

// findOld compares what Redis has after the load with MySQL. Every row is settled, so that the worker repairs nothing
// that is found here.
func (p *player) findOld(ctx context.Context, r reader, on prices, result *Readers) error {
	right, err := on.all(ctx)
	if err != nil {
		return err
	}
	for id := firstPriced + 1; id <= lastPriced; id++ {
		cents, ttl, err := p.stored(ctx, r, id)
		if err != nil {
			return err
		}
		if cents != nil && *cents != right[id] {
			result.Old = append(result.Old, OldPrice{Product: id, MySQLCents: right[id], RedisCents: *cents, RedisSeconds: int(ttl.Round(time.Second).Seconds())})
		}
	}
	return nil
}

// awaitSettled waits until the worker has nothing left to do.
func (p *player) awaitSettled(ctx context.Context) error {
	looks := time.NewTicker(settleInterval)
	defer looks.Stop()
	for {
		if settled, err := p.settled(ctx); settled || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-p.ended:
			return workerEnded(err)
		case <-looks.C:
		}
	}
}

// forgetHeard takes what the subscriber heard until now.
func (p *player) forgetHeard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	text, err := p.listener.fence(ctx)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case h := <-p.listener.events:
			if h.err != nil {
				return fmt.Errorf("listen: %w", h.err)
			}
			if h.fence == text {
				return nil
			}
		}
	}
}

// judgeReaders says what is not as it should be: naive readers that keep no old price show no problem, and those of
// package cache must keep none. How many there are after the load is left to chance.
func (p *player) judgeReaders(naive, ours *Readers) {
	if a := naive.Arranged; !a.isStale() {
		p.fault("readers with %s kept no old price of product %d, so that nothing is shown", naive.Name, a.Product)
	}
	a := ours.Arranged
	if a.RedisCents != nil && *a.RedisCents != a.MySQLCents {
		p.fault("readers with %s: Redis has %s for product %d, and MySQL says %s", ours.Name, money(*a.RedisCents), a.Product, money(a.MySQLCents))
	}
	if a.NextCents != a.MySQLCents {
		p.fault("readers with %s: the next reader got %s for product %d, and MySQL says %s", ours.Name, money(a.NextCents), a.Product, money(a.MySQLCents))
	}
	if !a.Refused {
		p.fault("readers with %s: what was loaded of product %d before the change was not refused", ours.Name, a.Product)
	}
	for _, o := range ours.Old {
		p.fault("readers with %s: Redis has %s for product %d, and MySQL says %s", ours.Name, money(o.RedisCents), o.Product, money(o.MySQLCents))
	}
}
