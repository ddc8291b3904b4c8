package cache

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
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

// keys are what the scripts of leases and fills are given.
func (n names) keys() []string { return []string{n.lease, n.hold, n.value} }

// A grant is the lease script's answer.
type grant struct {
	kind   string // lease, value, taken or held, or "" with err
	text   string // the lease's, or the value
	wait   time.Duration
	stamps map[string]string // made or read before the load; "" for a tag that is held
	sent   time.Time
	err    error // for this key alone
}

func grantOf(cmd *redis.Cmd) (g grant) {
	parts, err := cmd.Slice()
	if err != nil || len(parts) != 2 {
		return grant{err: fmt.Errorf("unexpected answer %v: %w", parts, err)}
	}
	g.kind, _ = parts[0].(string)
	switch rest := parts[1].(type) {
	case string:
		g.text = rest
	case int64:
		g.wait = time.Duration(rest) * time.Millisecond
	}
	return g
}

// leases asks for the lease of each job's key, and reads or makes the stamps of their tags. All jobs have the same tags and
// policy.
func (c *Cache) leases(ctx context.Context, jobs []*job) ([]grant, error) {
	calls := make([]call, len(jobs))
	for i, j := range jobs {
		if j.token == "" {
			j.token = rand.Text()
		}
		calls[i] = call{leaseScript, j.names.keys(), []any{j.token, c.config.Lease.Milliseconds(), j.useless}}
	}
	tags := jobs[0].tags
	calls = c.stampCalls(calls, tags, jobs[0].longest())
	sent := time.Now()
	return send(ctx, c.redis, "lease", func(ctx context.Context) ([]grant, error) {
		cmds, _, err := c.redis.run(ctx, calls, nil)
		if err != nil {
			return nil, err
		}
		stamps, err := stampsOf(tags, cmds[len(jobs):])
		if err != nil {
			return nil, err
		}
		grants := make([]grant, len(jobs))
		for i, cmd := range cmds[:len(jobs)] {
			g := grantOf(cmd)
			g.stamps, g.sent = stamps, sent
			if at := timeOf(g.text); g.kind == "lease" && at > 0 && c.redis.clock.due() {
				c.redis.clock.heard(at, sent)
			}
			grants[i] = g
		}
		return grants, nil
	})
}

// lease is leases for one job.
func (c *Cache) lease(ctx context.Context, j *job) (grant, error) {
	grants, err := c.leases(ctx, []*job{j})
	if err != nil {
		return grant{}, err
	}
	return grants[0], grants[0].err
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

// A filling is Redis' answer to a parcel: whether it was accepted, and whether the stamps were the same still when it was.
type filling struct {
	accepted, same bool
	err            error // for this key alone
}

// fill stores parcels, each under its job's lease.
func (c *Cache) fill(ctx context.Context, parcels []parcel) ([]filling, error) {
	calls := make([]call, len(parcels))
	var tags []string
	for i, p := range parcels {
		calls[i] = call{fillScript, p.job.names.keys(), []any{p.job.lease, p.text, max(p.life.Milliseconds(), 1)}}
		tags = slices.AppendSeq(tags, maps.Keys(p.entry.Tags))
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	return send(ctx, c.redis, "fill", func(ctx context.Context) ([]filling, error) {
		cmds, stamps, err := c.redis.run(ctx, calls, tags)
		if err != nil {
			return nil, err
		}
		fillings := make([]filling, len(parcels))
		for i, cmd := range cmds {
			stored, err := cmd.Int()
			fillings[i] = filling{stored == 1, parcels[i].entry.stands(stamps), err}
		}
		return fillings, nil
	})
}

// release gives a lease back.
func (c *Cache) release(ctx context.Context, n names, lease string) {
	calls := []call{{releaseScript, []string{n.lease}, []any{lease}}}
	_, _ = send(ctx, c.redis, "release", func(ctx context.Context) (struct{}, error) {
		_, _, err := c.redis.run(ctx, calls, nil)
		return struct{}{}, err
	}) // a lease that is not given back ends by itself
}
