package cache

import (
	"context"
	"slices"
)

// read asks Redis for all keys.
func (b *group) read(ctx context.Context) ([]reading, error) {
	readings := make([]reading, 0, len(b.requests))
	for chunk := range slices.Chunk(b.requests, pipelineMost) {
		more, err := b.readOnce(ctx, chunk)
		if err != nil {
			return nil, err
		}
		readings = append(readings, more...)
	}
	return readings, nil
}

// readOnce is read in one pipeline, in a second one for the stamps of tags that only the entries name, and in a third one for
// what slides.
func (b *group) readOnce(ctx context.Context, requests []*request) ([]reading, error) {
	raws, stamps, err := b.c.readRaw(ctx, requests)
	if err != nil {
		return nil, err
	}
	var more []string
	for _, got := range raws {
		if got.text == nil || b.c.config.Plain {
			continue
		}
		var e entry
		if e.parseOwn(got.text) { // whoever writes in another order is served all the same, more slowly
			more = append(more, e.tagNames()...)
		}
	}
	slices.Sort(more)
	more = slices.DeleteFunc(slices.Compact(more), func(tag string) bool { _, ok := stamps[tag]; return ok })
	if stamps, err = b.c.withStamps(ctx, stamps, more); err != nil {
		return nil, err
	}
	readings := make([]reading, len(raws))
	var sliding []int
	for i, got := range raws {
		if readings[i], err = requests[i].judgeRaw(ctx, got, stamps); err != nil {
			return nil, err
		}
		if requests[i].slides(&readings[i]) {
			sliding = append(sliding, i)
		}
	}
	if len(sliding) == 0 {
		return readings, nil
	}
	slid, by := make([]reading, len(sliding)), make([]*request, len(sliding))
	for i, at := range sliding {
		slid[i], by[i] = readings[at], requests[at]
	}
	if err := b.c.slideAll(ctx, by, slid); err != nil {
		return nil, err
	}
	for i, at := range sliding {
		readings[at] = slid[i]
	}
	return readings, nil
}
