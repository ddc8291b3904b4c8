package cache

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

var (
	leaseScript   = redis.NewScript(protocol.LeaseScript)
	fillScript    = redis.NewScript(protocol.FillScript)
	releaseScript = redis.NewScript(protocol.ReleaseScript)
	stampScript   = redis.NewScript(protocol.StampScript)
	expireScript  = redis.NewScript(protocol.ExpireScript)
)

const (
	// stampMargin is how much longer a stamp lives than the entries that bear it.
	stampMargin = time.Hour
	// anyValue tells the lease script that no value is of use.
	anyValue = "*"
)

// names are a key's three in Redis. ok is false for a key that has no lease.
type names struct {
	lease, hold, value string
	ok                 bool
}

func namesOf(name string) names {
	lease, ok := protocol.LeaseKey(name)
	hold, _ := protocol.HoldKey(name)
	return names{lease, hold, name, ok}
}

// A grant is the lease script's answer.
type grant struct {
	kind   string // lease, value, taken or held
	text   string // the lease's, or the value
	wait   time.Duration
	stamps map[string]string // made or read before the load; "" for a tag that is held
	sent   time.Time
}

// lease asks for a key's lease, and reads or makes the stamps of tags for entries of the given life.
func (c *Cache) lease(ctx context.Context, n names, token, useless string, tags []string, life time.Duration) (grant, error) {
	calls := []call{{leaseScript, []string{n.lease, n.hold, n.value}, []any{token, c.config.Lease.Milliseconds(), useless}}}
	calls = c.stampCalls(calls, tags, life)
	sent := time.Now()
	g, err := send(ctx, c.redis, "lease", func(ctx context.Context) (grant, error) {
		cmds, _, err := c.redis.run(ctx, calls, nil)
		if err != nil {
			return grant{}, err
		}
		parts, err := cmds[0].Slice()
		if err != nil || len(parts) != 2 {
			return grant{}, fmt.Errorf("unexpected answer %v: %w", parts, err)
		}
		var g grant
		g.kind, _ = parts[0].(string)
		switch rest := parts[1].(type) {
		case string:
			g.text = rest
		case int64:
			g.wait = time.Duration(rest) * time.Millisecond
		}
		g.stamps, err = stampsOf(tags, cmds[1:])
		return g, err
	})
	g.sent = sent
	if g.kind == "lease" && err == nil {
		if at := timeOf(g.text); at > 0 && c.redis.clock.due() {
			c.redis.clock.heard(at, sent)
		}
	}
	return g, err
}

// stampCalls appends a run of the stamp script for each tag. All are stampable.
func (c *Cache) stampCalls(calls []call, tags []string, life time.Duration) []call {
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

// stampable reports whether the stamps of all tags have a name for a tombstone: what depends on one that has none is
// loaded and not stored, as a key without a lease is.
func stampable(tags []string) bool {
	for _, tag := range tags {
		if _, ok := protocol.HoldKey(protocol.StampKey(tag)); !ok {
			return false
		}
	}
	return true
}

// makeStamps reads stamps, and makes those that are missing.
func (c *Cache) makeStamps(ctx context.Context, tags []string, life time.Duration) (map[string]string, error) {
	return send(ctx, c.redis, "stamps", func(ctx context.Context) (map[string]string, error) {
		cmds, _, err := c.redis.run(ctx, c.stampCalls(nil, tags, life), nil)
		if err != nil {
			return nil, err
		}
		return stampsOf(tags, cmds)
	})
}

// fill stores an entry's text under a lease. It reports whether that was accepted, and whether the stamps were the same
// still when it was.
func (c *Cache) fill(ctx context.Context, n names, lease string, text []byte, life time.Duration, stamps map[string]string) (accepted, same bool, err error) {
	tags := make([]string, 0, len(stamps))
	keys := make([]string, 0, len(stamps))
	for tag := range stamps {
		tags = append(tags, tag)
		keys = append(keys, protocol.StampKey(tag))
	}
	calls := []call{{fillScript, []string{n.lease, n.hold, n.value}, []any{lease, text, max(life.Milliseconds(), 1)}}}
	type result struct{ accepted, same bool }
	got, err := send(ctx, c.redis, "fill", func(ctx context.Context) (result, error) {
		cmds, reads, err := c.redis.run(ctx, calls, keys)
		if err != nil {
			return result{}, err
		}
		stored, err := cmds[0].Int()
		if err != nil {
			return result{}, err
		}
		same := true
		for i, tag := range tags {
			same = same && reads[i].Val() == stamps[tag] && stamps[tag] != ""
		}
		return result{stored == 1, same}, nil
	})
	return got.accepted, got.same, err
}

// release gives a lease back.
func (c *Cache) release(ctx context.Context, n names, lease string) {
	calls := []call{{releaseScript, []string{n.lease}, []any{lease}}}
	_, _ = send(ctx, c.redis, "release", func(ctx context.Context) (struct{}, error) {
		_, _, err := c.redis.run(ctx, calls, nil)
		return struct{}{}, err
	}) // a lease that is not given back ends by itself
}
