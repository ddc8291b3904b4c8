package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

// listMap makes of a row the names that an index set would have as members.
const listMap = "version: 1\nentities: {list: {each: {n: 0..2}, keys: [\"zahraah:prod:list:{id}:{n}\"]}}\n"

func listRow(i int) (entity, id string, params any) { return "list", fmt.Sprintf("%06d", i), nil }

func listKey(i int) string {
	return fmt.Sprintf("zahraah:prod:list:%06d:%d", i/setMembers, i%setMembers)
}

// A patternShop has keys that a pattern finds.
type patternShop struct{ shop *shop }

// enumerated measures rows whose map lists as many keys as a set has members, from full outbox to
// empty.
func (p patternShop) enumerated(ctx context.Context, n int) (float64, error) {
	if err := p.shop.fill(ctx, n*setMembers, listKey); err != nil {
		return 0, err
	}
	took, err := p.shop.drained(ctx, n, listRow, p.shop.workers(1, listMap))
	if err != nil {
		return 0, err
	}
	left, err := p.shop.Keys(ctx, "zahraah:*").Result()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d names are left", len(left))
	}
	return took, err
}

// scans measures one scan for a pattern among names, without a budget.
func (p patternShop) scans(ctx context.Context, runs, names int) (list []float64, err error) {
	k, err := p.shop.keyspace(keyspace.Options{SweepShare: 1, Timeout: 5 * time.Second, BeaconTTL: time.Hour})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	if err := p.shop.fill(ctx, names, productName); err != nil {
		return nil, err
	}
	for range runs {
		took, err := timed(func() error {
			_, err := k.Sweeper.Sweep(ctx, listPatterns(0), nil)
			return err
		})
		if err != nil {
			return nil, err
		}
		list = append(list, took)
	}
	return list, nil
}
