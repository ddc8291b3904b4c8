package conform

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/unstale/unstale/protocol"
)

// caseSchedules returns the schedules that check one rule each.
func caseSchedules() (cases []schedule) {
	add := func(name string, needs func(Line) bool, play func(*player) error) {
		cases = append(cases, schedule{"case/" + name, play, needs})
	}
	many := func(ready Line) bool { return ready.Many }
	memory := func(ready Line) bool { return ready.L1 }
	add("stores", nil, func(p *player) error { return findsStored(p, false) })
	add("stores-tagged", nil, func(p *player) error { return findsStored(p, true) })
	add("not-found", nil, findsNothing)
	add("failed-load", nil, failsToLoad)
	add("many", many, loadsMany)
	add("lease-time", nil, takesShortLease)
	add("list", nil, leavesList)
	for _, e := range storedEntries {
		add(e.name, nil, func(p *player) error { return meets(p, e) })
	}
	for i, g := range globs {
		add(fmt.Sprint("glob-", i), memory, func(p *player) error { return matches(p, g) })
	}
	add("opens", memory, findsInMemory)
	add("gap", memory, missesMessage)
	add("lost-subscription", memory, losesSubscription)
	add("silence", memory, hearsNothing)
	return cases
}

// fetchOnce reads the key of a scene, and reports whether the client has loaded, and whether it
// made a round trip.
func (s *scene) fetchOnce(c *client) (r *read, loaded, traveled bool, err error) {
	p := s.p
	if r, err = p.ask(c, s, s.key); err != nil {
		return r, false, false, err
	}
	if err = p.until(func() bool { return r.result != nil || len(p.loads) > 0 }, all); err == nil {
		loaded = len(p.loads) > 0
		err = p.complete(r)
	}
	if err == nil {
		s.judgeRead(r)
	}
	return r, loaded, c.trips > r.trips, err
}

// tries is how often a client may fail to do what is useful and not required: a command may have
// taken longer than its timeout.
const tries = 3

// findsStored reads twice in one process, and once in another one: only the first read loads.
func findsStored(p *player, tagged bool) error {
	s, found := p.open(tagged), ""
	for range tries {
		s.key += ":stored"
		p.world.commit(s.key, oldMark+s.key)
		found = ""
		for i, c := range []*client{p.clients[0], p.clients[0], p.clients[len(p.clients)-1]} {
			_, loaded, _, err := s.fetchOnce(c)
			if err != nil {
				return err
			}
			if loaded != (i == 0) {
				found = fmt.Sprintf("read %d of %q has loaded: %v", i+1, s.key, loaded)
			}
		}
		if err := s.leases(); err != nil || found == "" {
			return err
		}
	}
	p.ledger.breach("stores", found)
	return nil
}

// findsNothing reads a key without a row, and then with one.
func findsNothing(p *player) error {
	s := p.open(false)
	p.world.remove(s.key)
	for range 2 {
		r, err := p.ask(p.clients[0], s, s.key)
		if err == nil {
			err = p.complete(r)
		}
		if err != nil {
			return err
		}
		if value, ok := r.result.Values[s.key]; ok || r.result.Error != "" {
			p.ledger.breach("value", fmt.Sprintf("a read of %q, which has no row, got %q and the error %q", s.key, value, r.result.Error))
		}
		if err := s.leases(); err != nil {
			return err
		}
	}
	for step := range writerSteps {
		if err := s.write(step); err != nil {
			return err
		}
	}
	return s.end()
}

// failsToLoad answers a load with an error.
func failsToLoad(p *player) error {
	s := p.open(true)
	r, err := p.ask(p.clients[0], s, s.key)
	if err != nil {
		return err
	}
	if err := p.until(func() bool { return len(p.loads) > 0 }, all); err != nil {
		return err
	}
	if err := p.answer(p.loads[0], "the database is away"); err != nil {
		return err
	}
	if err := p.complete(r); err != nil {
		return err
	}
	if r.result.Error == "" {
		p.ledger.breach("value", fmt.Sprintf("a read of %q whose load failed got %q", s.key, r.result.Values))
	}
	return s.leases()
}

// loadsMany invalidates one of two keys while both are loaded.
func loadsMany(p *player) error {
	s := p.open(false)
	other := s.key + ":2"
	p.world.commit(other, oldMark+other)
	r, err := p.ask(p.clients[0], s, s.key, other)
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
	for step := range writerSteps {
		if err := s.write(step); err != nil {
			return err
		}
	}
	return s.end(r)
}

// takesShortLease makes the lease of the map shorter than that of the client.
func takesShortLease(p *player) error {
	short := mapLease / 2
	longest := func(d time.Duration) error {
		for _, c := range p.clients {
			c.observer.longest = d
		}
		return p.world.shorten(p.ctx, d)
	}
	if err := longest(short); err != nil {
		return err
	}
	s := p.open(false)
	if _, _, _, err := s.fetchOnce(p.clients[0]); err != nil {
		return err
	}
	if err := longest(mapLease); err != nil {
		return err
	}
	for _, c := range p.clients { // so that it knows
		s.key += ":again"
		p.world.commit(s.key, oldMark+s.key)
		if _, _, _, err := s.fetchOnce(c); err != nil {
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
	if _, _, _, err := s.fetchOnce(p.clients[0]); err != nil {
		return err
	}
	if kind := p.world.admin.Type(p.ctx, s.key).Val(); kind != "list" {
		p.ledger.breach("foreign", fmt.Sprintf("a list is now a %s", kind))
	}
	return s.leases()
}

// A storedEntry is an entry that Redis holds when a reader comes.
type storedEntry struct {
	name, rule string
	text       func(s *scene, e int64) string // e is when it expires
	expired    bool
	usable     bool // the reader returns its value without a load
	stays      bool // it is not replaced
	tagged     bool
}

// quoted returns a text as JSON.
func quoted(text string) string {
	b, _ := json.Marshal(text) // a text has JSON
	return string(b)
}

// storedEntries are entries by the rule that decides about them.
var storedEntries = []storedEntry{
	{name: "order-of-fields", rule: "any-order", usable: true, text: func(s *scene, e int64) string {
		return fmt.Sprintf(`{"v":%s,"zz":{"a":[1,"}"]},"e":%d}`, quoted(oldMark+s.key), e)
	}},
	{name: "white-space", rule: "any-order", usable: true, text: func(s *scene, e int64) string {
		return fmt.Sprintf("{ \"e\" : %d ,\n\"v\" : %s }", e, quoted(oldMark+s.key))
	}},
	{name: "gzip", rule: "any-order", usable: true, text: func(s *scene, e int64) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(quoted(oldMark + s.key))) // into memory
		_ = w.Close()
		return fmt.Sprintf(`{"e":%d,"c":"gzip","v":"%s"}`, e, base64.StdEncoding.EncodeToString(b.Bytes()))
	}},
	{name: "expired", rule: "expired", expired: true, text: func(s *scene, e int64) string {
		return fmt.Sprintf(`{"e":%d,"v":%s}`, e, quoted("expired "+s.key))
	}},
	{name: "no-value", rule: "unreadable", text: func(_ *scene, e int64) string { return fmt.Sprintf(`{"e":%d}`, e) }},
	{name: "torn", rule: "unreadable", text: func(_ *scene, e int64) string { return fmt.Sprintf(`{"e":%d,"v":"x`, e) }},
	{name: "bytes", rule: "unreadable", text: func(_ *scene, e int64) string { return fmt.Sprintf("{\"e\":%d,\"v\":\xff\xfe\x00}", e) }},
	{name: "unknown-format", rule: "foreign", stays: true, text: func(_ *scene, e int64) string { return fmt.Sprintf(`{"f":9,"e":%d,"v":"x"}`, e) }},
	{name: "unknown-codec", rule: "foreign", stays: true, text: func(_ *scene, e int64) string { return fmt.Sprintf(`{"e":%d,"c":"conform-9","v":"eA=="}`, e) }},
	{name: "other-version", rule: "tags", tagged: true, text: func(s *scene, e int64) string {
		return fmt.Sprintf(`{"e":%d,"t":{%s:"other:1"},"v":%s}`, e, quoted(s.tag), quoted("other "+s.key))
	}},
	{name: "without-tag", rule: "tags", tagged: true, text: func(s *scene, e int64) string {
		return fmt.Sprintf(`{"e":%d,"v":%s}`, e, quoted("untagged "+s.key))
	}},
}

// meets reads a key that has an entry, in each process.
func meets(p *player, e storedEntry) error {
	s := p.open(e.tagged)
	now, err := p.world.admin.Time(p.ctx).Result()
	if err != nil {
		return err
	}
	ends := now.Add(time.Hour)
	if e.expired {
		ends = now.Add(-time.Hour)
	}
	text := e.text(s, ends.UnixMilli())
	if err := p.world.admin.Set(p.ctx, s.key, text, 2*time.Hour).Err(); err != nil {
		return err
	}
	r, loaded, _, err := s.fetchOnce(p.clients[0])
	if err != nil {
		return err
	}
	after, _ := p.world.admin.Get(p.ctx, s.key).Result()
	switch {
	case loaded == e.usable:
		p.ledger.breach(e.rule, fmt.Sprintf("a read that found %q has loaded: %v, and got %q", text, loaded, r.result.Values))
	case e.usable:
	case (after == text) != e.stays:
		p.ledger.breach(e.rule, fmt.Sprintf("after a read that found %q, the key has %q", text, after))
	}
	return s.leases()
}

// A globCase is a pattern that matches a key.
type globCase struct{ pattern, key string }

// globs are appended to the key of the scene.
var globs = []globCase{
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
	s.key += suffix
	s.name = s.key
	p.world.commit(s.key, oldMark+s.key)
	if open, err = p.memories(); err != nil {
		return s, nil, err
	}
	for _, c := range open {
		for range 2 {
			if _, _, _, err := s.fetchOnce(c); err != nil {
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
		all := true
		for _, c := range open {
			_, _, traveled, err := s.fetchOnce(c)
			if err != nil {
				return err
			}
			all = all && !traveled
		}
		if all {
			return nil
		}
	}
	p.ledger.breach("opens", "a key that was read twice before made a round trip")
	return nil
}

// afterwards reads in each client: what is in memory must be gone.
func (s *scene) afterwards(rule string, open []*client) error {
	for _, c := range open {
		r, err := s.p.ask(c, s, s.key)
		if err == nil {
			err = s.p.complete(r)
		}
		if err != nil {
			return err
		}
		if r.result.Values[s.key] == oldMark+s.key {
			s.p.ledger.breach(rule, fmt.Sprintf("a read of %q got the old value from memory", s.key))
		}
	}
	return nil
}

// change commits and unlinks without a message.
func (s *scene) change() error {
	if err := s.write(stepCommit); err != nil {
		return err
	}
	return s.write(stepUnlink)
}

// matches sends a pattern that matches the key.
func matches(p *player, g globCase) error {
	s, open, err := remembered(p, g.key)
	if err != nil || len(open) == 0 {
		return err
	}
	if err := s.change(); err != nil {
		return err
	}
	if err := s.deliver(nil, []string{protocol.Escape(strings.TrimSuffix(s.key, g.key)) + g.pattern}); err != nil {
		return err
	}
	return s.afterwards("glob", open)
}

// missesMessage loses the message about the key. Others follow it.
func missesMessage(p *player) error {
	s, open, err := remembered(p, "")
	if err != nil || len(open) == 0 {
		return err
	}
	if err := s.change(); err != nil {
		return err
	}
	if err := p.world.message(p.ctx, []string{s.key}, nil, true); err != nil {
		return err
	}
	for range 2 { // when the second one is applied, the number of the first one has been seen
		if err := s.deliver([]string{s.key + ":other"}, nil); err != nil {
			return err
		}
	}
	return s.afterwards("gap", open)
}

// losesSubscription cuts the subscription. The message about the key is sent meanwhile.
func losesSubscription(p *player) error {
	s, open, err := remembered(p, "")
	if err != nil || len(open) == 0 {
		return err
	}
	for _, c := range open {
		before := c.proxy.subscriptions()
		c.proxy.cut(c.proxy.subscribers)
		for end := time.Now().Add(patience); c.proxy.subscriptions() == before && time.Now().Before(end); {
			if _, err := p.absorb(period / 20); err != nil {
				return err
			}
		}
	}
	if err := s.change(); err != nil {
		return err
	}
	if open, err = p.memories(); err != nil {
		return err
	}
	return s.afterwards("lost-subscription", open)
}

// hearsNothing stops the heartbeats.
func hearsNothing(p *player) error {
	s, open, err := remembered(p, "")
	if err != nil || len(open) == 0 {
		return err
	}
	p.world.silence(true)
	defer p.world.silence(false)
	if err := s.change(); err != nil {
		return err
	}
	for _, c := range open {
		if ok, err := p.opened(c, false); err != nil || !ok {
			if err == nil {
				p.ledger.breach("silence", fmt.Sprintf("the cache is open %v after the last heartbeat", patience))
			}
			return err
		}
	}
	return s.afterwards("silence", open)
}
