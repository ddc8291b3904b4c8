package cache

import (
	"context"
	"crypto/rand"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// stampMargin is how much longer a tag version lives than its entries.
const stampMargin = time.Hour

// A stampStore reads and creates the versions of tags in Redis.
type stampStore struct{ redis *backend }

// make returns the versions of tags, and creates missing ones.
func (s stampStore) make(ctx context.Context, tags []string, life time.Duration) (map[string]string, error) {
	return send(ctx, s.redis, "stamps", func(ctx context.Context) (map[string]string, error) {
		cmds, _, err := s.redis.run(ctx, stampCalls(nil, tags, life), nil)
		if err != nil {
			return nil, err
		}
		return stampsOf(tags, cmds)
	})
}

// read returns the versions of tags, and creates none.
func (s stampStore) read(ctx context.Context, tags []string) (map[string]string, error) {
	return send(ctx, s.redis, "stamps", func(ctx context.Context) (map[string]string, error) {
		_, stamps, err := s.redis.run(ctx, nil, tags)
		return stamps, err
	})
}

// with returns stamps plus the versions of more tags, which it reads.
func (s stampStore) with(ctx context.Context, stamps map[string]string, more []string) (map[string]string, error) {
	if len(more) == 0 {
		return stamps, nil
	}
	all, err := s.read(ctx, more)
	if err != nil {
		return nil, err
	}
	maps.Copy(all, stamps)
	return all, nil
}

// stand reports whether the tag versions of the entry are current. It reads those that are not in
// stamps.
func (s stampStore) stand(ctx context.Context, e *entry, stamps map[string]string) (bool, error) {
	if len(e.Tags) == 0 {
		return true, nil
	}
	var missing []string
	for tag := range e.Tags {
		if _, ok := stamps[tag]; !ok {
			missing = append(missing, tag)
		}
	}
	stamps, err := s.with(ctx, stamps, missing)
	return err == nil && e.stands(stamps), err
}

// stampCalls appends a run of the stamp script for each tag. All are stampable.
func stampCalls(calls []call, tags []string, life time.Duration) []call {
	for _, tag := range tags {
		stamp := protocol.StampKey(tag)
		hold, _ := protocol.HoldKey(stamp)
		calls = append(calls, call{stampScript, []string{stamp, hold}, []any{rand.Text(), (life + stampMargin).Milliseconds()}})
	}
	return calls
}

func stampsOf(tags []string, cmds []*redis.Cmd) (map[string]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	stamps := make(map[string]string, len(tags))
	for i, tag := range tags {
		var err error
		if stamps[tag], err = cmds[i].Text(); err != nil {
			return nil, err
		}
	}
	return stamps, nil
}

// stampable reports whether all tags can have versions: their names allow a tombstone, and entries,
// which are JSON, can contain them. A value with another tag is loaded and not stored, like a key
// without a lease.
func stampable(tags []string) bool {
	for _, tag := range tags {
		if _, ok := protocol.HoldKey(protocol.StampKey(tag)); !ok || !utf8.ValidString(tag) {
			return false
		}
	}
	return true
}
