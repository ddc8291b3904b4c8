package conform

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/protocol"
)

// caseSchedules returns the schedules that check one rule each.
func caseSchedules() []schedule {
	many := func(ready Line) bool { return ready.Many }
	memory := func(ready Line) bool { return ready.L1 }
	cases := []schedule{
		{name: "case/stores", play: func(p *player) error { return findsStored(p, false) }},
		{name: "case/stores-tagged", play: func(p *player) error { return findsStored(p, true) }},
		{name: "case/not-found", play: findsNothing},
		{name: "case/failed-load", play: failsToLoad},
		{name: "case/many", play: loadsMany, needs: many},
		{name: "case/lease-time", play: takesShortLease},
		{name: "case/list", play: leavesList},
	}
	for _, e := range storedEntries {
		cases = append(cases, schedule{name: "case/" + e.name, play: e.meets})
	}
	for i, g := range globs {
		name := fmt.Sprint("case/glob-", i)
		cases = append(cases, schedule{name, forgets("glob", g.key, func(s *scene, _ []*client) error {
			return s.deliver(nil, []string{protocol.Escape(strings.TrimSuffix(s.key, g.key)) + g.pattern})
		}), memory})
	}
	return append(cases,
		schedule{"case/opens", findsInMemory, memory},
		schedule{"case/gap", forgets("gap", "", missesMessage), memory},
		schedule{"case/lost-subscription", forgets("lost-subscription", "", losesSubscription), memory},
		schedule{"case/silence", forgets("silence", "", hearsNothing), memory})
}

// tries is how often a client may fail to do what is useful and not required: a command may have
// taken longer than its timeout.
const tries = 3

// findsStored reads twice in one process, and once in another one: only the first read loads.
func findsStored(p *player, tagged bool) error {
	s, found := p.open(tagged), ""
	for range tries {
		s.rename(":stored")
		found = ""
		for i, c := range []*client{p.clients[0], p.clients[0], p.clients[len(p.clients)-1]} {
			r, err := s.fetch(c)
			if err != nil {
				return err
			}
			if loaded := r.did.loads > 0; loaded != (i == 0) {
				found = fmt.Sprintf("read %d of %q has loaded: %v", i+1, s.key, loaded)
			}
		}
		if err := s.leases(); err != nil || found == "" {
			return err
		}
	}
	p.ledger.breach("stores", "%s", found)
	return nil
}

// findsNothing reads a key without a row, and then with one.
func findsNothing(p *player) error {
	s := p.open(false)
	delete(p.world.rows, s.key)
	for range 2 {
		r, err := p.read(p.clients[0], s)
		if err != nil {
			return err
		}
		if value, ok := r.result.Values[s.key]; ok || r.result.Error != "" {
			p.ledger.breach("value", "a read of %q, which has no row, got %q and the error %q", s.key, value, r.result.Error)
		}
		if err := s.leases(); err != nil {
			return err
		}
	}
	if err := s.write(stepCommit, stepUnlink, stepMessage); err != nil {
		return err
	}
	return s.end()
}

// failsToLoad answers a load with an error.
func failsToLoad(p *player) error {
	s := p.open(true)
	r, err := p.ask(p.clients[0], s)
	if err == nil {
		err = p.until(func() bool { return len(p.loads) > 0 }, all)
	}
	if err == nil {
		err = p.answer(p.loads[0], "the database is away")
	}
	if err == nil {
		err = p.complete(r)
	}
	if err != nil {
		return err
	}
	if r.result.Error == "" {
		p.ledger.breach("value", "a read of %q whose load failed got %q", s.key, r.result.Values)
	}
	return s.leases()
}

// loadsMany invalidates one of two keys while both are loaded.
func loadsMany(p *player) error {
	s := p.open(false)
	other := s.key + ":2"
	p.world.rows[other] = oldMark + other
	r, err := p.ask(p.clients[0], s, other)
	if err != nil {
		return err
	}
	// the value of the first load is from before the commit
	if err := p.until(func() bool { return len(p.loads) > 0 }, all); err != nil {
		return err
	}
	for len(p.loads) > 0 {
		if err := p.answer(p.loads[0], ""); err != nil {
			return err
		}
	}
	if err := s.write(stepCommit, stepUnlink, stepMessage); err != nil {
		return err
	}
	return s.end(r)
}

// takesShortLease makes the lease of the map shorter than that of the client.
func takesShortLease(p *player) error {
	limit := func(lease time.Duration) error {
		for _, c := range p.clients {
			c.observer.longest = lease
		}
		return p.world.limit(p.ctx, lease)
	}
	if err := limit(mapLease / 2); err != nil {
		return err
	}
	s := p.open(false)
	if _, err := s.fetch(p.clients[0]); err != nil {
		return err
	}
	if err := limit(mapLease); err != nil {
		return err
	}
	for _, c := range p.clients { // so that it knows
		s.rename(":again")
		if _, err := s.fetch(c); err != nil {
			return err
		}
	}
	return nil
}

// leavesList reads a key that holds a list.
func leavesList(p *player) error {
	s := p.open(false)
	if err := p.world.admin.RPush(p.ctx, s.key, "x").Err(); err != nil {
		return err
	}
	if _, err := s.fetch(p.clients[0]); err != nil {
		return err
	}
	if kind := p.world.admin.Type(p.ctx, s.key).Val(); kind != "list" {
		p.ledger.breach("foreign", "a list is now a %s", kind)
	}
	return s.leases()
}

// A storedEntry is an entry that Redis holds when a reader comes. The rule decides about it: by
// any-order it is used, by foreign it stays, and by all others it is loaded and replaced.
type storedEntry struct {
	name, rule string
	text       string // with KEY, TAG, LATER and BEFORE: times of expiry; ZIPPED: the old value
}

var storedEntries = []storedEntry{
	{"order-of-fields", "any-order", `{"v":"old KEY","zz":{"a":[1,"}"]},"e":LATER}`},
	{"white-space", "any-order", "{ \"e\" : LATER ,\n\"v\" : \"old KEY\" }"},
	{"gzip", "any-order", `{"e":LATER,"c":"gzip","v":"ZIPPED"}`},
	{"expired", "expired", `{"e":BEFORE,"v":"expired KEY"}`},
	{"no-value", "unreadable", `{"e":LATER}`},
	{"torn", "unreadable", `{"e":LATER,"v":"x`},
	{"bytes", "unreadable", "{\"e\":LATER,\"v\":\xff\xfe\x00}"},
	{"unknown-format", "foreign", `{"f":9,"e":LATER,"v":"x"}`},
	{"unknown-codec", "foreign", `{"e":LATER,"c":"conform-9","v":"eA=="}`},
	{"other-version", "tags", `{"e":LATER,"t":{"TAG":"other:1"},"v":"other KEY"}`},
	{"without-tag", "tags", `{"e":LATER,"v":"untagged KEY"}`},
}

// meets reads a key that has an entry.
func (e storedEntry) meets(p *player) error {
	s := p.open(e.rule == "tags")
	now, err := p.world.admin.Time(p.ctx).Result()
	if err != nil {
		return err
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	fmt.Fprintf(w, `"%s%s"`, oldMark, s.key) // into memory
	_ = w.Close()
	text := strings.NewReplacer(
		"KEY", s.key, "TAG", s.tag, "ZIPPED", base64.StdEncoding.EncodeToString(zipped.Bytes()),
		"LATER", fmt.Sprint(now.Add(time.Hour).UnixMilli()), "BEFORE", fmt.Sprint(now.Add(-time.Hour).UnixMilli()),
	).Replace(e.text)
	if err := p.world.admin.Set(p.ctx, s.key, text, 2*time.Hour).Err(); err != nil {
		return err
	}
	r, err := s.fetch(p.clients[0])
	if err != nil {
		return err
	}
	after, _ := p.world.admin.Get(p.ctx, s.key).Result()
	loaded, used, stays := r.did.loads > 0, e.rule == "any-order", e.rule == "foreign"
	switch {
	case loaded == used:
		p.ledger.breach(e.rule, "a read that found %q has loaded: %v, and got %q", text, loaded, r.result.Values)
	case !used && (after == text) != stays:
		p.ledger.breach(e.rule, "after a read that found %q, the key has %q", text, after)
	}
	return s.leases()
}

// globs are patterns that match keys. Both are appended to the key of the scene.
var globs = []struct{ pattern, key string }{
	{"kq??", "kqü"},
	{"kq?*\\?", "kqü?"},
	{"*\\*b", "a*b"},
	{strings.Repeat("*a", 8), strings.Repeat("a", 40)},
}

// memories are the clients with an in-process cache, once it is open.
func (p *player) memories() (open []*client, err error) {
	for _, c := range p.clients {
		if !c.ready.L1 {
			continue
		}
		ok, err := p.opened(c, true)
		if err != nil {
			return nil, err
		}
		if !ok {
			p.ledger.breach("opens", "the cache is not open, although heartbeats arrive")
			continue
		}
		open = append(open, c)
	}
	return open, nil
}

// remembered opens a scene whose old value is in the memory of clients. The suffix ends the key.
func remembered(p *player, suffix string) (s *scene, open []*client, err error) {
	s = p.open(false)
	s.rename(suffix)
	if open, err = p.memories(); err != nil {
		return s, nil, err
	}
	for _, c := range open {
		for range 2 {
			if _, err := s.fetch(c); err != nil {
				return s, nil, err
			}
			c.hasOld = true
		}
	}
	return s, open, nil
}

// findsInMemory checks that the next read of a client needs no round trip.
func findsInMemory(p *player) error {
	for i := range tries {
		s, open, err := remembered(p, fmt.Sprint(":", i))
		if err != nil {
			return err
		}
		trips := 0
		for _, c := range open {
			r, err := s.fetch(c)
			if err != nil {
				return err
			}
			trips += r.did.trips
		}
		if trips == 0 {
			return nil
		}
	}
	p.ledger.breach("opens", "a key that was read twice before made a round trip")
	return nil
}

// forgets returns a schedule: what is in memory becomes old, something happens from which clients
// know that by a rule, and then their memory must not have it.
func forgets(rule, suffix string, happens func(*scene, []*client) error) func(*player) error {
	return func(p *player) error {
		s, open, err := remembered(p, suffix)
		if err != nil || len(open) == 0 {
			return err
		}
		if err := s.write(stepCommit, stepUnlink); err != nil {
			return err
		}
		defer p.world.silence(false)
		if err := happens(s, open); err != nil {
			return err
		}
		for _, c := range open {
			r, err := p.read(c, s)
			if err != nil {
				return err
			}
			if r.result.Values[s.key] == oldMark+s.key {
				p.ledger.breach(rule, "a read of %q got the old value from memory", s.key)
			}
		}
		return nil
	}
}

// missesMessage loses the message about the key. Others follow it.
func missesMessage(s *scene, _ []*client) error {
	if err := s.p.world.message(s.p.ctx, []string{s.key}, nil, true); err != nil {
		return err
	}
	for range 2 { // when the second one is applied, the number of the first one has been seen
		if err := s.deliver([]string{s.key + ":other"}, nil); err != nil {
			return err
		}
	}
	return nil
}

// losesSubscription cuts the subscriptions. No message about the key comes.
func losesSubscription(s *scene, open []*client) error {
	for _, c := range open {
		before := c.proxy.begun.Load()
		c.proxy.cut(subscribed)
		for end := time.Now().Add(patience); c.proxy.begun.Load() == before && time.Now().Before(end); {
			if _, err := s.p.absorb(period / 20); err != nil {
				return err
			}
		}
	}
	_, err := s.p.memories()
	return err
}

// hearsNothing stops the heartbeats.
func hearsNothing(s *scene, open []*client) error {
	s.p.world.silence(true)
	for _, c := range open {
		ok, err := s.p.opened(c, false)
		if err != nil {
			return err
		}
		if !ok {
			s.p.ledger.breach("silence", "the cache is open %v after the last heartbeat", patience)
		}
	}
	return nil
}
