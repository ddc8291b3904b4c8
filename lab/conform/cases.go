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
		{name: "case/stores", play: func(p *player) { findsStored(p, false) }},
		{name: "case/stores-tagged", play: func(p *player) { findsStored(p, true) }},
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
		cases = append(cases, schedule{fmt.Sprint("case/glob-", i), forgets("glob", g.key, func(s *scene, _ []*client) {
			s.deliver(nil, []string{protocol.Escape(strings.TrimSuffix(s.key, g.key)) + g.pattern})
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
func findsStored(p *player, tagged bool) {
	s, fault := p.open(tagged), ""
	for range tries {
		s.rename(":stored")
		fault = ""
		for i, c := range []*client{p.clients[0], p.clients[0], p.clients[len(p.clients)-1]} {
			if loaded := s.fetch(c).did.loads > 0; loaded != (i == 0) {
				fault = fmt.Sprintf("read %d of %q has loaded: %v", i+1, s.key, loaded)
			}
		}
		if s.leases(); fault == "" {
			return
		}
	}
	p.ledger.breach("stores", "%s", fault)
}

// findsNothing reads a key without a row, and then with one.
func findsNothing(p *player) {
	s := p.open(false)
	delete(p.world.rows, s.key)
	for range 2 {
		r := s.read(p.clients[0])
		if value, ok := r.result.Values[s.key]; ok || r.result.Error != "" {
			p.ledger.breach("value", "a read of %q, which has no row, got %q and the error %q", s.key, value, r.result.Error)
		}
		s.leases()
	}
	s.write(stepCommit, stepUnlink, stepMessage)
	s.end()
}

// failsToLoad answers a load with an error.
func failsToLoad(p *player) {
	s := p.open(true)
	r := s.ask(p.clients[0])
	p.until(func() bool { return len(p.loads) > 0 }, all)
	p.answer(p.loads[0], "the database is away")
	p.complete(r)
	if r.result.Error == "" {
		p.ledger.breach("value", "a read of %q whose load failed got %q", s.key, r.result.Values)
	}
	s.leases()
}

// loadsMany invalidates one of two keys after both were loaded.
func loadsMany(p *player) {
	s := p.open(false)
	other := s.key + ":2"
	p.world.rows[other] = oldMark + other
	r := s.ask(p.clients[0], other)
	p.until(func() bool { return len(p.loads) > 0 }, all)
	for len(p.loads) > 0 {
		p.answer(p.loads[0], "") // from before the commit
	}
	s.write(stepCommit, stepUnlink, stepMessage)
	s.end(r)
}

// takesShortLease makes the lease of the map shorter than that of the client.
func takesShortLease(p *player) {
	limit := func(lease time.Duration) {
		for _, c := range p.clients {
			c.observer.longest = lease
		}
		p.world.limit(lease)
	}
	limit(mapLease / 2)
	s := p.open(false)
	s.fetch(p.clients[0])
	limit(mapLease)
	for _, c := range p.clients { // so that it knows
		s.rename(":again")
		s.fetch(c)
	}
}

// leavesList reads a key that holds a list.
func leavesList(p *player) {
	s := p.open(false)
	must(p.world.admin.RPush(p.world.ctx, s.key, "x").Err())
	s.fetch(p.clients[0])
	if kind := found(p.world.admin.Type(p.world.ctx, s.key).Result()); kind != "list" {
		p.ledger.breach("foreign", "a list is now a %s", kind)
	}
	s.leases()
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
func (e storedEntry) meets(p *player) {
	s, now := p.open(e.rule == "tags"), p.world.now()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	fmt.Fprintf(w, `"%s%s"`, oldMark, s.key) // into memory
	_ = w.Close()
	text := strings.NewReplacer(
		"KEY", s.key, "TAG", s.tag, "ZIPPED", base64.StdEncoding.EncodeToString(zipped.Bytes()),
		"LATER", fmt.Sprint(now.Add(time.Hour).UnixMilli()), "BEFORE", fmt.Sprint(now.Add(-time.Hour).UnixMilli()),
	).Replace(e.text)
	must(p.world.admin.Set(p.world.ctx, s.key, text, 2*time.Hour).Err())
	r := s.fetch(p.clients[0])
	after := found(p.world.admin.Get(p.world.ctx, s.key).Result())
	loaded, used, stays := r.did.loads > 0, e.rule == "any-order", e.rule == "foreign"
	switch {
	case loaded == used:
		p.ledger.breach(e.rule, "a read that found %q has loaded: %v, and got %q", text, loaded, r.result.Values)
	case !used && (after == text) != stays:
		p.ledger.breach(e.rule, "after a read that found %q, the key has %q", text, after)
	}
	s.leases()
}

// globs are patterns that match keys. Both are appended to the key of the scene.
var globs = []struct{ pattern, key string }{
	{"kq??", "kqü"},
	{"kq?*\\?", "kqü?"},
	{"*\\*b", "a*b"},
	{strings.Repeat("*a", 8), strings.Repeat("a", 40)},
}

// remembered opens a scene whose old value is in the memory of clients. The suffix ends the key.
func remembered(p *player, suffix string) (s *scene, open []*client) {
	s = p.open(false)
	s.rename(suffix)
	open = p.memories()
	for _, c := range open {
		s.fetch(c)
		s.fetch(c)
		c.hasOld = true
	}
	return s, open
}

// findsInMemory checks that the next read of a client needs no round trip.
func findsInMemory(p *player) {
	for i := range tries {
		s, open := remembered(p, fmt.Sprint(":", i))
		trips := 0
		for _, c := range open {
			trips += s.fetch(c).did.trips
		}
		if trips == 0 {
			return
		}
	}
	p.ledger.breach("opens", "a key that was read twice before made a round trip")
}

// forgets returns a schedule: what is in memory becomes old, something happens from which clients
// know that by a rule, and then their memory must not have it.
func forgets(rule, suffix string, happens func(*scene, []*client)) func(*player) {
	return func(p *player) {
		s, open := remembered(p, suffix)
		s.write(stepCommit, stepUnlink)
		defer p.world.silence(false)
		happens(s, open)
		for _, c := range open {
			if s.read(c).result.Values[s.key] == oldMark+s.key {
				p.ledger.breach(rule, "a read of %q got the old value from memory", s.key)
			}
		}
	}
}

// missesMessage loses the message about the key. Others follow it.
func missesMessage(s *scene, _ []*client) {
	s.p.world.message([]string{s.key}, nil, true)
	for range 2 { // when the second one is applied, the number of the first one has been seen
		s.deliver([]string{s.key + ":other"}, nil)
	}
}

// losesSubscription cuts the subscriptions. No message about the key comes.
func losesSubscription(s *scene, open []*client) {
	for _, c := range open {
		before := c.proxy.begun.Load()
		c.proxy.cut(subscribed)
		s.p.within(patience, func() bool { return c.proxy.begun.Load() != before }, none)
	}
	s.p.memories()
}

// hearsNothing stops the heartbeats.
func hearsNothing(s *scene, open []*client) {
	s.p.world.silence(true)
	for _, c := range open {
		if !s.p.opened(c, false) {
			s.p.ledger.breach("silence", "the cache is open %v after the last heartbeat", patience)
		}
	}
}
