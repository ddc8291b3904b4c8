package cache

import (
	"context"
	"maps"
	"slices"
)

// read is one pipeline for all keys.
func (b *group) read(ctx context.Context) ([]reading, error) {
	raws, stamps, err := b.c.readRaw(ctx, b.requests)
	if err != nil {
		return nil, err
	}
	var more []string
	for _, got := range raws {
		if got.text == nil || b.c.config.Plain {
			continue
		}
		if e, err := parseEntry(got.text, b.c.config.Codec); err == nil {
			more = append(more, e.tagNames()...)
		}
	}
	slices.Sort(more)
	more = slices.DeleteFunc(slices.Compact(more), func(tag string) bool { _, ok := stamps[tag]; return ok })
	if len(more) > 0 {
		read, err := b.c.stamps(ctx, more)
		if err != nil {
			return nil, err
		}
		maps.Copy(read, stamps)
		stamps = read
	}
	readings := make([]reading, len(raws))
	for i, got := range raws {
		if readings[i], err = b.requests[i].judgeRaw(ctx, got, stamps); err != nil {
			return nil, err
		}
	}
	return readings, nil
}
