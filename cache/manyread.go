package cache

import (
	"context"
	"errors"
	"slices"
)

// read asks Redis for all keys. The error means that it has answered for none.
func (b *group) read(ctx context.Context) (readings []reading, err error) {
	answered, unread := false, []reading{{unread: true}}
	readings = make([]reading, 0, len(b.requests))
	size := func(r *request) int { return b.c.redis.sizes.of(r.name) }
	rest := pipelines(b.requests, size, func(chunk []*request) error {
		var more []reading
		if more, err = b.readOnce(ctx, chunk); err != nil {
			more = slices.Repeat(unread, len(chunk))
		}
		readings = append(readings, more...)
		answered = answered || err == nil || errors.As(err, new(partial))
		return err
	})
	if !answered {
		return nil, err
	}
	return append(readings, slices.Repeat(unread, len(rest))...), nil
}

// readOnce implements read in one pipeline, a second one for the versions of tags that only the
// entries name, and a third one for sliding values.
func (b *group) readOnce(ctx context.Context, chunk requests) ([]reading, error) {
	raws, stamps, err := chunk.read(ctx)
	if err != nil {
		return nil, err
	}
	var more []string
	for _, got := range raws {
		if got.text == nil || b.c.config.Plain {
			continue
		}
		var e entry
		// entries with fields in another order are read too, more slowly
		if e.parseOwn(got.text) {
			more = append(more, e.tagNames()...)
		}
	}
	slices.Sort(more)
	more = slices.DeleteFunc(slices.Compact(more), func(tag string) bool { _, ok := stamps[tag]; return ok })
	if stamps, err = b.c.stamps.with(ctx, stamps, more); err != nil {
		return nil, err
	}
	readings := make([]reading, len(raws))
	var sliding []int
	for i, got := range raws {
		if readings[i], err = chunk[i].judgeRaw(ctx, got, stamps); err != nil {
			return nil, err
		}
		if chunk[i].slides(&readings[i]) {
			sliding = append(sliding, i)
		}
	}
	if len(sliding) == 0 {
		return readings, nil
	}
	slid, by := make([]reading, len(sliding)), make(requests, len(sliding))
	for i, at := range sliding {
		slid[i], by[i] = readings[at], chunk[at]
	}
	if err := by.slide(ctx, slid); err != nil {
		return nil, err
	}
	for i, at := range sliding {
		readings[at] = slid[i]
	}
	return readings, nil
}
