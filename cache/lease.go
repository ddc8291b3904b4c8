package cache

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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

// pipelineMost is how many commands one pipeline has: Timeout is for each pipeline, and one of thousands would take longer.
const pipelineMost = 500

// leases asks for the lease of each job's key, and reads or makes the stamps of their tags. All jobs have the same tags and
// policy. A grant without a kind has the error. What Redis may have granted without an answer is given back.
func (c *Cache) leases(ctx context.Context, jobs []*job) []grant {
	grants := make([]grant, 0, len(jobs))
	tags := jobs[0].tags
	var stamps map[string]string
	for chunk := range slices.Chunk(jobs, pipelineMost) {
		more, made, err := c.leasesOnce(ctx, chunk, tags)
		if err != nil {
			return append(grants, slices.Repeat([]grant{{err: err}}, len(jobs)-len(grants))...)
		}
		if stamps == nil {
			stamps, tags = made, nil // from before the leases of the chunks that follow, and so from before the load
		}
		for _, g := range more {
			g.stamps = stamps
			grants = append(grants, g)
		}
	}
	return grants
}

// leasesOnce is leases in one pipeline, all or none of it.
func (c *Cache) leasesOnce(ctx context.Context, jobs []*job, tags []string) ([]grant, map[string]string, error) {
	type answer struct {
		grants []grant
		stamps map[string]string
	}
	calls := make([]call, len(jobs), len(jobs)+len(tags))
	for i, j := range jobs {
		if j.token == "" {
			j.token = rand.Text()
		}
		calls[i] = call{leaseScript, j.names.keys(), []any{j.token, c.lifeOfLease().Milliseconds(), j.useless}}
	}
	calls = c.stampCalls(calls, tags, jobs[0].longest())
	sent := time.Now()
	got, err := send(ctx, c.redis, "lease", func(ctx context.Context) (a answer, err error) {
		cmds, _, err := c.redis.run(ctx, calls, nil)
		a.grants = make([]grant, len(jobs))
		for i, cmd := range cmds[:len(jobs)] {
			g := grantOf(cmd)
			g.sent = sent
			if at := timeOf(g.text); g.kind == "lease" && at > 0 && c.redis.clock.due() {
				c.redis.clock.heard(at, sent)
			}
			a.grants[i] = g
		}
		if err == nil {
			a.stamps, err = stampsOf(tags, cmds[len(jobs):])
		}
		return a, err
	})
	for _, g := range got.grants {
		if isReply(g.err) {
			c.counts.failed() // what is loaded cannot be stored
		}
		c.redis.writes.note(g.kind == "lease", g.err)
	}
	if err != nil {
		c.redis.writes.note(false, err)
		c.loseAll(jobs, got.grants, err)
	}
	return got.grants, got.stamps, err
}

// loseAll has the leases looked for that a pipeline may have taken which ended with err. grants are the answers that came,
// or nil.
func (c *Cache) loseAll(jobs []*job, grants []grant, err error) {
	if errors.As(err, new(unsent)) {
		return
	}
	var lost []lostLease
	for i, j := range jobs {
		if grants == nil || grants[i].kind == "lease" || grants[i].kind == "" && !isReply(grants[i].err) {
			lost = append(lost, lostLease{key: j.names.lease, token: j.token})
		}
	}
	c.lose(lost...)
}

// lifeOfLease is how long a lease lasts: as configured, and no longer than the map's.
func (c *Cache) lifeOfLease() time.Duration { return c.redis.alive.leaseOf(c.config.Lease) }

// lease is leases for one job.
func (c *Cache) lease(ctx context.Context, j *job) (grant, error) {
	grants, stamps, err := c.leasesOnce(ctx, []*job{j}, j.tags)
	if err != nil {
		return grant{}, err
	}
	g := grants[0]
	g.stamps = stamps
	return g, g.err
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

// stampable reports whether the stamps of all tags have a name for a tombstone, and entries, which are JSON, can name the
// tags: what depends on another one is loaded and not stored, as a key without a lease is.
func stampable(tags []string) bool {
	for _, tag := range tags {
		if _, ok := protocol.HoldKey(protocol.StampKey(tag)); !ok || !utf8.ValidString(tag) {
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
func (c *Cache) fill(ctx context.Context, parcels []parcel) []filling {
	fillings := make([]filling, 0, len(parcels))
	for chunk := range slices.Chunk(parcels, pipelineMost) {
		more, err := c.fillOnce(ctx, chunk)
		if err != nil {
			return append(fillings, slices.Repeat([]filling{{err: err}}, len(parcels)-len(fillings))...)
		}
		fillings = append(fillings, more...)
	}
	return fillings
}

// fillOnce is fill in one pipeline.
func (c *Cache) fillOnce(ctx context.Context, parcels []parcel) ([]filling, error) {
	calls := make([]call, len(parcels))
	var tags []string
	for i, p := range parcels {
		calls[i] = call{fillScript, p.job.names.keys(), []any{p.job.lease, p.text, max(p.life.Milliseconds(), 1)}}
		tags = slices.AppendSeq(tags, maps.Keys(p.entry.Tags))
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	fillings, err := send(ctx, c.redis, "fill", func(ctx context.Context) ([]filling, error) {
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
	c.redis.writes.note(false, err)
	for _, f := range fillings {
		c.redis.writes.note(f.accepted, f.err)
	}
	return fillings, err
}

// giveBack releases the leases that jobs hold, also when their context has ended or the process is about to end.
func (c *Cache) giveBack(ctx context.Context, jobs ...*job) {
	var held []*job
	for _, j := range jobs {
		if j.lease != "" {
			held = append(held, j)
		}
	}
	for chunk := range slices.Chunk(held, pipelineMost) {
		calls := make([]call, len(chunk))
		for i, j := range chunk {
			calls[i] = releaseCall(j.names.lease, j.lease)
		}
		if err := c.runReleases(context.WithoutCancel(ctx), calls); classify(err) == nil {
			continue
		}
		for _, j := range chunk {
			token, _, _ := strings.Cut(j.lease, ":")
			c.lose(lostLease{key: j.names.lease, token: token})
		}
	}
}

// giveBackAtLast is giveBack where nobody would recover a panic of the client.
func (c *Cache) giveBackAtLast(ctx context.Context, jobs ...*job) {
	defer func() {
		if recover() != nil {
			c.counts.failed()
		}
	}()
	c.giveBack(ctx, jobs...)
}

func releaseCall(key, lease string) call { return call{releaseScript, []string{key}, []any{lease}} }

// runReleases runs the calls in one pipeline.
func (c *Cache) runReleases(ctx context.Context, calls []call) error {
	_, err := send(ctx, c.redis, "release", func(ctx context.Context) (struct{}, error) {
		_, _, err := c.redis.run(ctx, calls, nil)
		return struct{}{}, err
	})
	return err
}
