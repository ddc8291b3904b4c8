package cache

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// read is one pipeline for all keys.
func (b *group) read(ctx context.Context) ([]reading, error) {
	tags := b.requests[0].p.o.Tags
	raws, stamps, err := b.readRaw(ctx, tags)
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
		read, err := b.c.readStamps(ctx, more)
		if err != nil {
			return nil, err
		}
		for tag, stamp := range read {
			stamps[tag] = stamp
		}
	}
	readings := make([]reading, len(raws))
	for i, got := range raws {
		if got.list {
			readings[i].state = foreign
		} else if readings[i], err = b.requests[i].judge(ctx, got.text, stamps); err != nil {
			return nil, err
		}
	}
	return readings, nil
}

func (b *group) readRaw(ctx context.Context, tags []string) (raws []raw, stamps map[string]string, err error) {
	slides := make([]time.Duration, len(b.requests))
	for i, r := range b.requests {
		slides[i] = r.slide()
	}
	stamps = map[string]string{}
	raws, err = send(ctx, b.c.redis, "read", func(ctx context.Context) ([]raw, error) {
		values, marks := make([]*redis.StringCmd, len(b.requests)), make([]*redis.StringCmd, len(tags))
		_, err := b.c.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, r := range b.requests {
				values[i] = get(ctx, p, r.name, slides[i])
			}
			for i, tag := range tags {
				marks[i] = p.Get(ctx, protocol.StampKey(tag))
			}
			return nil
		})
		if err := classify(err); err != nil {
			return nil, err
		}
		raws := make([]raw, len(values))
		for i, value := range values {
			if raws[i], err = rawOf(value.Bytes()); err != nil {
				return nil, err
			}
		}
		read := make(map[string]string, len(tags))
		for i, tag := range tags {
			read[tag] = marks[i].Val()
		}
		if len(raws) > 0 {
			raws[0].stamps = read
		}
		return raws, nil
	})
	if err == nil && len(raws) > 0 && raws[0].stamps != nil {
		stamps = raws[0].stamps
	}
	return raws, stamps, err
}
