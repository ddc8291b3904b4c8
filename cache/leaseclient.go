package cache

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/protocol"
)

var (
	leaseScript   = redis.NewScript(protocol.LeaseScript)
	fillScript    = redis.NewScript(protocol.FillScript)
	releaseScript = redis.NewScript(protocol.ReleaseScript)
	stampScript   = redis.NewScript(protocol.StampScript)
	expireScript  = redis.NewScript(protocol.ExpireScript)
)

// anyValue requests the lease no matter which value Redis holds.
const anyValue = "*"

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

// A leaseClient takes the leases of keys in Redis, stores values under them, and gives them back.
type leaseClient struct {
	redis  *backend
	counts *counts
	lost   lostLeases
}

// takeAll requests the lease of the key of each claim. It also returns the versions of tags, and
// creates missing ones, for entries that live at most for longest. A grant without a kind has the
// error. If the reply to a request is lost, the lease is released.
func (l *leaseClient) takeAll(ctx context.Context, claims []*claim, tags []string, longest time.Duration) []grant {
	grants := make([]grant, 0, len(claims))
	var stamps map[string]string
	var err error
	rest := pipelines(claims, l.redis.sizes.ofAnswer, func(chunk []*claim) error {
		var more []grant
		var made map[string]string
		if more, made, err = l.takeOnce(ctx, chunk, tags, longest); err != nil {
			grants = append(grants, slices.Repeat([]grant{{err: err}}, len(chunk))...)
			return err
		}
		if stamps == nil {
			// from before the leases of the chunks that follow, and so from before the load
			stamps, tags = made, nil
		}
		for _, g := range more {
			g.stamps = stamps
			grants = append(grants, g)
		}
		return nil
	})
	return append(grants, slices.Repeat([]grant{{err: err}}, len(rest))...)
}

// takeOnce implements takeAll in one pipeline, all or nothing.
func (l *leaseClient) takeOnce(ctx context.Context, claims []*claim, tags []string, longest time.Duration) ([]grant, map[string]string, error) {
	type answer struct {
		grants []grant
		stamps map[string]string
	}
	calls := make([]call, len(claims), len(claims)+len(tags))
	life := l.life()
	if life < l.redis.alive.lease.configured {
		l.counts.shortLeases.Add(uint64(len(claims)))
	}
	for i, c := range claims {
		if c.token == "" {
			c.token = rand.Text()
		}
		calls[i] = call{leaseScript, c.names.keys(), []any{c.token, life.Milliseconds(), c.useless}}
	}
	calls = stampCalls(calls, tags, longest)
	got, err := send(ctx, l.redis, "lease", func(ctx context.Context) (a answer, err error) {
		sent := time.Now()
		cmds, _, err := l.redis.runScripts(ctx, calls, nil)
		a.grants = make([]grant, len(claims))
		for i, cmd := range cmds[:len(claims)] {
			g := grantOf(cmd)
			g.sent = sent
			if at := timeOf(g.text); g.kind == "lease" && at > 0 && l.redis.clock.due() {
				l.redis.clock.heard(at, sent)
			}
			a.grants[i] = g
		}
		if err == nil {
			a.stamps, err = stampsOf(tags, cmds[len(claims):])
		}
		return a, err
	})
	for _, g := range got.grants {
		if isReply(cmp.Or(g.err, err)) {
			l.counts.failed() // what is loaded cannot be stored
		}
		l.redis.writes.recordReply(false, g.err) // a lease stores no value: its fill may be refused
	}
	if err != nil {
		l.redis.writes.recordReply(false, err)
		l.loseAll(claims, got.grants, err)
	} else if l.life() < life { // as these answers say: second sweeps do not wait for these leases
		for i, c := range claims {
			if g := got.grants[i]; g.kind == "lease" {
				l.giveBack(ctx, &claim{names: c.names, lease: g.text})
			}
			c.token = ""
		}
		return l.takeOnce(ctx, claims, tags, longest)
	}
	return got.grants, got.stamps, err
}

// loseAll has the leases looked for that a pipeline may have taken which ended with err. grants are
// the answers that came, or nil.
func (l *leaseClient) loseAll(claims []*claim, grants []grant, err error) {
	if errors.As(err, new(unsent)) {
		return
	}
	var lost []lostLease
	for i, c := range claims {
		if grants == nil || grants[i].kind == "lease" || grants[i].kind == "" && !isReply(grants[i].err) {
			lost = append(lost, lostLease{key: c.names.lease, token: c.token})
		}
	}
	l.lost.lose(lost...)
}

// life returns how long a lease lasts: as configured, and no longer than the map's.
func (l *leaseClient) life() time.Duration { return l.redis.alive.lease.get() }

// take requests the lease of one claim: see takeAll.
func (l *leaseClient) take(ctx context.Context, c *claim, tags []string, longest time.Duration) (grant, error) {
	grants, stamps, err := l.takeOnce(ctx, []*claim{c}, tags, longest)
	if err != nil {
		return grant{}, err
	}
	g := grants[0]
	g.stamps = stamps
	return g, g.err
}

// A filling is the answer of Redis to a parcel: whether it was accepted, and whether the tag
// versions were still the same then.
type filling struct {
	accepted, same bool
	err            error // for this key alone
}

// fill stores parcels, each under its claim's lease.
func (l *leaseClient) fill(ctx context.Context, parcels []parcel) []filling {
	fillings := make([]filling, 0, len(parcels))
	var err error
	rest := pipelines(parcels, func(p parcel) int { return len(p.text) }, func(chunk []parcel) error {
		var more []filling
		if more, err = l.fillOnce(ctx, chunk); err != nil {
			more = slices.Repeat([]filling{{err: err}}, len(chunk))
		}
		fillings = append(fillings, more...)
		return err
	})
	return append(fillings, slices.Repeat([]filling{{err: err}}, len(rest))...)
}

// fillOnce implements fill in one pipeline.
func (l *leaseClient) fillOnce(ctx context.Context, parcels []parcel) ([]filling, error) {
	calls := make([]call, len(parcels))
	var tags []string
	for i, p := range parcels {
		calls[i] = call{fillScript, p.claim.names.keys(), []any{p.claim.lease, p.text, max(p.life.Milliseconds(), 1)}}
		tags = slices.AppendSeq(tags, maps.Keys(p.entry.Tags))
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	fillings, err := send(ctx, l.redis, "fill", func(ctx context.Context) ([]filling, error) {
		cmds, stamps, err := l.redis.runScripts(ctx, calls, tags)
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
	l.redis.writes.recordReply(false, err)
	for _, f := range fillings {
		l.redis.writes.recordReply(f.accepted, f.err)
	}
	return fillings, err
}

// giveBack releases the leases of claims, which all hold one, and removes the values that their
// loads have superseded. It does so even if the context has ended or the process is about to end.
func (l *leaseClient) giveBack(ctx context.Context, held ...*claim) {
	for chunk := range slices.Chunk(held, pipelineMost) {
		calls := make([]call, len(chunk))
		for i, c := range chunk {
			calls[i] = releaseCall(c.names.lease, c.lease)
			if c.removes() {
				calls[i].keys, calls[i].args = append(calls[i].keys, c.names.value), append(calls[i].args, c.useless)
			}
		}
		if err := l.redis.release(context.WithoutCancel(ctx), calls); classify(err) == nil {
			continue
		}
		for _, c := range chunk {
			token, _, _ := strings.Cut(c.lease, ":")
			l.lost.lose(lostLease{key: c.names.lease, token: token})
		}
	}
}

// giveBackAtLast calls giveBack for a caller that cannot recover from a panic of the client.
func (l *leaseClient) giveBackAtLast(ctx context.Context, held ...*claim) {
	defer func() {
		if recover() != nil {
			l.counts.failed()
		}
	}()
	l.giveBack(ctx, held...)
}

func releaseCall(key, lease string) call { return call{releaseScript, []string{key}, []any{lease}} }

const (
	// mostLost is the largest number of leases to look for. Others expire.
	mostLost = 16_384
	// longestSearchPause is the pause between two looks while Redis is unavailable; otherwise it is
	// Timeout.
	longestSearchPause = time.Second
)

// A lostLease may be in Redis without a holder: its request was not answered, and a server that
// hangs may run it later, or it could not be released. While it exists, all callers wait for a load
// that does not run. Its token is not used again.
type lostLease struct {
	key, token string
	looked     bool // at least once, with an answer
}

// lostLeases are looked for by one goroutine, which runs while there are any.
type lostLeases struct {
	redis *backend
	run   *running

	mu        sync.Mutex
	all       []lostLease // only the goroutine takes some away
	searching bool
}

// lose has leases looked for and given back. It does not wait.
func (l *lostLeases) lose(leases ...lostLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, leases[:min(len(leases), mostLost-len(l.all))]...)
	if !l.searching && len(l.all) > 0 {
		l.searching = l.run.launch(l.search)
	}
}

// search looks for lost leases until there are none, or the Cache ends.
func (l *lostLeases) search() {
	for pause := time.Duration(0); sleep.For(l.run.life, pause) == nil; {
		leases := l.current()
		if len(leases) == 0 {
			return
		}
		left, answered := l.releaseFound(leases)
		l.replace(len(leases), left)
		if answered {
			pause = 0
		}
		pause = min(max(2*pause, l.redis.timeout), max(longestSearchPause, l.redis.timeout))
	}
}

// current returns the leases to look for. Nothing ends the search.
func (l *lostLeases) current() []lostLease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.searching = len(l.all) > 0
	return slices.Clone(l.all)
}

// replace puts those that are left in the place of the first n.
func (l *lostLeases) replace(n int, left []lostLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(left, l.all[n:]...)
}

// releaseFound releases the leases that exist, and returns those to look for again: until Redis has
// answered twice, a pause apart, without finding the lease the second time. A copy of the request
// may arrive as late as the first answer. answered reports whether Redis answered for any of them.
func (l *lostLeases) releaseFound(leases []lostLease) (left []lostLease, answered bool) {
	for chunk := range slices.Chunk(leases, pipelineMost) {
		cmds, _ := send(l.run.life, l.redis, "release", func(ctx context.Context) ([]redis.Cmder, error) {
			return l.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, lost := range chunk {
					p.Get(ctx, lost.key)
				}
				return nil
			})
		})
		var found []call
		for i, lost := range chunk {
			if cmds == nil || classify(cmds[i].Err()) != nil {
				left = append(left, lost)
				continue
			}
			answered = true
			text := cmds[i].(*redis.StringCmd).Val()
			there := strings.HasPrefix(text, lost.token+":")
			if there {
				found = append(found, releaseCall(lost.key, text))
			}
			if there || !lost.looked {
				left = append(left, lostLease{lost.key, lost.token, true})
			}
		}
		if len(found) > 0 {
			_ = l.redis.release(l.run.life, found) // what is still there is found again
		}
	}
	return left, answered
}
