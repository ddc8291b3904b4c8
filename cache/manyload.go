package cache

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// perform loads for jobs in one call and stores what they may store.
func (b *group) perform(ctx context.Context, jobs []*job, values map[string]any) error {
	c, fill := b.c, &Fill{}
	defer func() { // those whose lease is used up have none any more
		for _, j := range jobs {
			j.giveBack(ctx)
		}
	}()
	loadCtx, cancel := context.WithTimeout(context.WithValue(ctx, fillKey{}, fill), c.config.HardTimeout)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	keys := make([]string, len(jobs))
	for i, j := range jobs {
		keys[i] = j.key
	}
	started, start := c.events.Add(1), time.Now()
	loaded, err := b.call(loadCtx, keys)
	cost := time.Since(start)
	c.counts.loaded(err)
	if err != nil {
		return err
	}
	outcomes := make([]outcome, len(jobs))
	for i, j := range jobs {
		value, ok := loaded[j.key]
		outcomes[i] = outcome{value: value, started: started, negative: !ok}
		j.started = started
		if ok {
			values[j.key] = value
		} else {
			outcomes[i].err = ErrNotFound
		}
	}
	b.store(context.WithoutCancel(ctx), jobs, fill, outcomes, cost)
	return nil
}

// call runs the loader, and leaves it behind at the end of the context.
func (b *group) call(ctx context.Context, keys []string) (map[string]any, error) {
	type answer struct {
		values map[string]any
		err    error
	}
	answers := make(chan answer, 1)
	run := func() {
		select {
		case b.c.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-b.c.slots }()
		values := map[string]any{}
		j := &job{request: &request{c: b.c, key: fmt.Sprintf("%d keys", len(keys)), load: func(ctx context.Context) (any, error) {
			return nil, b.load(ctx, keys, func(key string, value any) { values[key] = value })
		}}}
		_, err := j.call(ctx)
		answers <- answer{values, err}
	}
	if !b.c.launch(run) {
		return nil, ErrClosed
	}
	select {
	case a := <-answers:
		return a.values, a.err
	case <-ctx.Done():
		switch {
		case b.c.life.Err() != nil:
			return nil, ErrClosed
		case errors.Is(ctx.Err(), context.Canceled):
			return nil, ctx.Err()
		}
		return nil, ErrLoadTimeout
	}
}

// store fills Redis and the memory in one pipeline.
func (b *group) store(ctx context.Context, jobs []*job, fill *Fill, outcomes []outcome, cost time.Duration) {
	c := b.c
	var parcels []parcel
	var whose []*outcome
	for i, j := range jobs {
		if j.lease == "" {
			continue
		}
		p, err := j.pack(ctx, fill, &outcomes[i], cost)
		if err != nil {
			c.counts.failed()
		}
		if p.text != nil {
			parcels, whose = append(parcels, p), append(whose, &outcomes[i])
		}
	}
	if len(parcels) == 0 {
		return
	}
	fillings, err := c.fill(ctx, parcels)
	if err != nil {
		c.counts.failed()
		return
	}
	for i, p := range parcels {
		p.filled(fillings[i], whose[i])
		if fillings[i].accepted {
			p.job.lease = ""
		}
	}
}
