package cache

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// requests are at least one request of the same Cache, with the same policy.
type requests []*request

// read sends one GET for each request, and reads the versions of the tags of their policies.
func (rs requests) read(ctx context.Context) ([]raw, map[string]string, error) {
	b := rs[0].c.redis
	tags, lives := rs[0].p.o.Tags, rs[0].asksLife()
	type answer struct {
		raws   []raw
		stamps map[string]string
		some   bool // values came before the time was over
	}
	got, err := send(ctx, b, "read", func(ctx context.Context) (a answer, err error) {
		sent := time.Now()
		cmds, err := b.pipelined(ctx, func(p redis.Pipeliner) error {
			// before the values: a value that ends between them does not get the time of its
			// successor
			if lives {
				for _, r := range rs {
					p.PTTL(ctx, r.name)
				}
			}
			for _, r := range rs {
				p.Get(ctx, r.name)
			}
			readStamps(ctx, p, tags)
			return nil
		})
		err = classify(err)
		var left []redis.Cmder
		if lives && len(cmds) > len(rs) {
			left, cmds = cmds[:len(rs)], cmds[len(rs):]
		}
		if late := errors.Is(err, ErrRedisTimeout); len(rs) > 1 && len(cmds) >= len(rs) && (late || err == nil) {
			a.some = b.sizes.saw(rs, cmds, late)
		}
		if err != nil {
			return a, err
		}
		if a.raws, err = rawsOf(cmds[:len(rs)]); err != nil {
			return a, err
		}
		for i, cmd := range left {
			a.raws[i].life = rs[i].lifeOf(cmd.(*redis.DurationCmd), sent)
		}
		cmds = cmds[len(rs):]
		a.stamps, err = stampsRead(tags, cmds)
		return a, err
	})
	if err != nil && got.some {
		err = partial{err}
	}
	return got.raws, got.stamps, err
}

// A partial is the fault of a pipeline that took too long after it had brought values. They are not
// used: the answer about the server comes last.
type partial struct{ error }

func (p partial) Unwrap() error { return p.error }

// slide extends the sliding values that requests have found, each by its own time and not beyond
// its end. If the key has another value by now, that is the reading. It was extended too, so it may
// end early or stay in Redis for longer; its entry has the valid times. If Redis does not extend
// it, the reading does not change.
func (rs requests) slide(ctx context.Context, found []reading) error {
	c := rs[0].c
	raws, err := send(ctx, c.redis, "slide", func(ctx context.Context) ([]raw, error) {
		now := c.redis.clock.now()
		cmds, err := c.redis.pipelined(ctx, func(p redis.Pipeliner) error {
			for i, r := range rs {
				e := &found[i].entry
				life := max(min(e.Idle, e.Expiry-now, longestTTL.Milliseconds()), 1)
				p.GetEx(ctx, r.name, time.Duration(life)*time.Millisecond)
			}
			return nil
		})
		if err := classify(err); err != nil {
			return nil, err
		}
		return rawsOf(cmds)
	})
	if err != nil {
		if ctx.Err() == nil {
			c.counts.failed()
		}
		return nil
	}
	for i, r := range rs {
		if string(raws[i].text) == string(found[i].text) {
			continue
		}
		// the versions in stamps are older
		if found[i], err = r.judgeRaw(ctx, raws[i], nil); err != nil {
			return err
		}
	}
	return nil
}
