package caches

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/outbox"
)

// A trial is one peer in one race.
type trial struct {
	*site
	peer peer
	id   string // of the row
	key  string
	tag  string
	out  outcome
	open []process
}

func (s *site) try(ctx context.Context, r race, p peer, id string) (out outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t := &trial{site: s, peer: p, id: id, key: "raced:" + id, out: outcome{Race: r.Name, Peer: p.Name, Old: []string{}}}
	if r.Name == "tag" {
		t.tag = "group:" + id
	}
	defer func() {
		for _, p := range t.open {
			err = errors.Join(err, p.Close())
		}
	}()
	if err := s.write(ctx, id, "old"); err != nil {
		return t.out, err
	}
	err = r.run(ctx, t)
	return t.out, err
}

// way returns how the peer's keys are deleted where a race does not say.
func (t *trial) way() way {
	if t.peer.Ours {
		return byWorker
	}
	return byItself
}

// process opens one more process, at an address of Redis.
func (t *trial) process(ctx context.Context, addr string) (process, error) {
	p, err := t.peer.open(ctx, t.site, addr, t.tag)
	if err == nil {
		t.open = append(t.open, p)
	}
	return p, err
}

// invalidate commits the new value and deletes its key.
func (t *trial) invalidate(ctx context.Context, w way) error {
	if w == byWorker {
		return t.write(ctx, t.id, "new", outbox.Invalidation{Entity: "value", ID: t.id})
	}
	writer, err := t.process(ctx, t.redis.Addr())
	if err != nil {
		return err
	}
	if err := t.write(ctx, t.id, "new"); err != nil {
		return err
	}
	return writer.Delete(ctx, t.key)
}

func (t *trial) invalidateTag(ctx context.Context) error {
	if t.peer.Ours {
		return t.write(ctx, t.id, "new", outbox.Invalidation{Entity: "group", ID: t.id})
	}
	writer, err := t.process(ctx, t.redis.Addr())
	if err != nil {
		return err
	}
	if err := t.write(ctx, t.id, "new"); err != nil {
		return err
	}
	return writer.(tagger).DeleteTag(ctx, t.tag)
}

// restart gives Redis back empty, and then invalidates.
func (t *trial) restart(ctx context.Context, w way) error {
	if err := t.restartRedis(ctx); err != nil {
		return err
	}
	for _, p := range t.open {
		if err := t.connected(ctx, p); err != nil {
			return err
		}
	}
	return t.invalidate(ctx, w)
}

// connected returns when a process reaches Redis again.
func (t *trial) connected(ctx context.Context, p process) error {
	n := 0
	return until(ctx, func() (bool, error) {
		n++
		_, err := p.Get(ctx, fmt.Sprintf("%s:probe%d", t.key, n), func(context.Context) (string, error) { return "probe", nil })
		return err == nil, ctx.Err()
	})
}

// inFlight pauses a load that has read the old row, lets something happen, and looks who gets what.
func (t *trial) inFlight(ctx context.Context, between func() error) error {
	same, err := t.process(ctx, t.redis.Addr())
	if err != nil {
		return err
	}
	other, err := t.process(ctx, t.redis.Addr())
	if err != nil {
		return err
	}
	read, release := make(chan struct{}), make(chan struct{})
	early := beside(ctx, same, t.key, func(ctx context.Context) (string, error) {
		value, err := t.read(t.id)(ctx)
		close(read)
		<-release
		return value, err
	})
	<-read
	if err := between(); err != nil {
		close(release)
		return err
	}
	late := beside(ctx, same, t.key, t.read(t.id))
	err = late.rest(ctx, t.peer.Waits)
	elsewhere := beside(ctx, other, t.key, t.read(t.id))
	err = errors.Join(err, elsewhere.rest(ctx, t.peer.Waits))
	close(release)
	for _, c := range []*call{early, late, elsewhere} {
		<-c.done
		err = errors.Join(err, c.err)
	}
	if err != nil {
		return err
	}
	t.old(placeSame, late.value)
	t.old(placeOther, elsewhere.value)
	same.Settle()
	other.Settle()
	return errors.Join(t.stored(ctx), t.later(ctx, same, other))
}

// inMemory runs between while a process has the old value in memory, and checks whether the process
// notices.
func (t *trial) inMemory(ctx context.Context, between func(*servers.Link) error) error {
	link, err := servers.NewLink("redis", t.redis.Addr())
	if err != nil {
		return err
	}
	defer link.Close()
	p, err := t.process(ctx, link.Addr())
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := p.Get(ctx, t.key, t.read(t.id)); err != nil {
			return err
		}
		p.Settle()
	}
	if err := between(link); err != nil {
		return err
	}
	limit := time.Now().Add(heardWithin)
	value := "old"
	for value == "old" && err == nil && time.Now().Before(limit) {
		value, err = p.Get(ctx, t.key, t.read(t.id))
	}
	if err == nil && t.old(placeMemory, value) {
		t.out.Kept = t.peer.Memory
	}
	return err
}

// cached lets another process read the key that was just deleted.
func (t *trial) cached(ctx context.Context) error {
	p, err := t.process(ctx, t.redis.Addr())
	if err != nil {
		return err
	}
	other, err := t.process(ctx, t.redis.Addr())
	if err != nil {
		return err
	}
	if _, err := p.Get(ctx, t.key, t.read(t.id)); err != nil {
		return err
	}
	p.Settle()
	if err := t.invalidate(ctx, t.way()); err != nil {
		return err
	}
	value, err := other.Get(ctx, t.key, t.read(t.id))
	t.old(placeOther, value)
	return err
}

// died commits without a delete by the application. With package cache the transaction still has
// its row.
func (t *trial) died(ctx context.Context) error {
	p, err := t.process(ctx, t.redis.Addr())
	if err != nil {
		return err
	}
	if _, err := p.Get(ctx, t.key, t.read(t.id)); err != nil {
		return err
	}
	p.Settle()
	if t.peer.Ours {
		err = t.invalidate(ctx, byWorker)
	} else {
		err = t.write(ctx, t.id, "new")
	}
	if err != nil {
		return err
	}
	next, err := t.process(ctx, t.redis.Addr())
	if err != nil {
		return err
	}
	return errors.Join(t.stored(ctx), t.later(ctx, next))
}

// later checks which values callers get after the race has ended.
func (t *trial) later(ctx context.Context, processes ...process) error {
	found := false
	for _, p := range processes {
		value, err := p.Get(ctx, t.key, t.read(t.id))
		if err != nil {
			return err
		}
		if value != "new" && !found {
			found = t.old(placeLater, value)
		}
	}
	return nil
}

// old notes where an old value was found, and reports whether it is one.
func (t *trial) old(place, value string) bool {
	if value == "new" {
		return false
	}
	if value != "old" {
		place += " (" + value + ")"
	}
	t.out.Old = append(t.out.Old, place)
	return true
}

// stored records the value in Redis: plain, or wrapped in an entry or a hash.
func (t *trial) stored(ctx context.Context) error {
	kind, err := t.admin.Type(ctx, t.key).Result()
	if err != nil {
		return err
	}
	text := ""
	if kind == "hash" {
		text, err = t.admin.HGet(ctx, t.key, "value").Result()
	} else {
		text, err = t.admin.Get(ctx, t.key).Result()
	}
	switch {
	case errors.Is(err, redis.Nil):
		t.out.Left, err = "nothing", nil
	case strings.Contains(text, "old"):
		t.out.Left = "old"
		t.out.For, err = t.admin.PTTL(ctx, t.key).Result()
		if t.peer.Refresh > 0 {
			t.out.For = min(t.out.For, t.peer.Refresh)
		}
		t.old(placeRedis, "old")
	default:
		t.out.Left = "new"
	}
	return err
}
