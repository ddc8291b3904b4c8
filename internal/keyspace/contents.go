package keyspace

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/protocol"
)

// Contents reads what Redis holds, and changes nothing.
type Contents struct {
	nodes  *Nodes
	budget *budget
}

// expectSingle detects a node of a Cluster behind a URL of a single server: it redirects clients
// that ask for keys of all slots, and answers a SCAN as if its keys were all keys.
func (c *Contents) expectSingle(ctx context.Context) error {
	if c.nodes.cluster != nil {
		return nil
	}
	const some = 20 // a node with half of the slots has all of them once in a million times
	commands := make([]redis.Cmder, some)
	for i := range commands {
		commands[i] = redis.NewStringCmd(ctx, "get", fmt.Sprint(beaconPrefix, i))
	}
	if err := c.nodes.exec(ctx, c.nodes.client, commands); err != nil {
		return err
	}
	for _, command := range commands {
		if o := outage(command.Err()); command.Err() != nil && o.State == StateMoving {
			return c.nodes.outage(ctx, o)
		}
	}
	return nil
}

// expectWhole is like expectSingle, for an account without GET, which cannot detect it.
func (c *Contents) expectWhole(ctx context.Context) error {
	if err := c.expectSingle(ctx); !IsDenied(err) {
		return err
	}
	return nil
}

// An Estimate is the number of keys that patterns match, from a sample.
type Estimate struct {
	Total   int64   // names that there are
	Sampled int64   // names that were looked at; all of them where it is no less than Total
	Matched []int64 // names that each pattern matches, about
}

// Estimate checks about sample names, evenly on all masters, and returns how many names each of
// patterns matches. Redis returns names in the order of their hashes, so the first ones are a
// random sample. In a Cluster, Redis 8 returns them slot by slot, so a hash tag that many names
// share may weigh too much or too little. It takes at most Options.SweepShare of Redis time and
// changes nothing. The error is an *Outage, or a *Refusal of a pattern that is not a glob.
func (c *Contents) Estimate(ctx context.Context, patterns []string, sample int64) (Estimate, error) {
	var refused error
	m := NewMatcher(patterns, func(i int, err error) { refused = cmp.Or(refused, error(&Refusal{Key: patterns[i], Err: err})) })
	if refused != nil {
		return Estimate{}, refused
	}
	e := Estimate{Matched: make([]int64, len(patterns))}
	err := c.share(ctx, sample, func(master *redis.Client, part int64) error { return c.estimate(ctx, master, m, part, &e) })
	return e, err
}

// share calls look for each master, with its part of a number of names, until it returns an error.
func (c *Contents) share(ctx context.Context, most int64, look func(master *redis.Client, part int64) error) error {
	masters, err := c.nodes.masters(ctx)
	if err == nil {
		err = c.expectSingle(ctx)
	}
	for i := 0; i < len(masters) && err == nil; i++ {
		err = look(masters[i], max(most/int64(len(masters)), 1))
	}
	return err
}

// estimate adds what one master has.
func (c *Contents) estimate(ctx context.Context, master *redis.Client, m *Matcher, sample int64, e *Estimate) error {
	matched := make([]int64, len(e.Matched))
	size, seen, err := c.sample(ctx, master, sample, func(names []string) {
		for _, name := range names {
			for _, i := range m.All(name) {
				matched[i]++
			}
		}
	})
	if err != nil {
		return err
	}
	e.Total += size
	e.Sampled += seen
	for i, n := range matched {
		if seen < size { // otherwise all of them were looked at
			n = int64(float64(n) * float64(size) / float64(seen))
		}
		e.Matched[i] += n
	}
	return nil
}

// sample calls visit with about a number of names of one master. It returns how many names the
// master has, and how many were visited.
func (c *Contents) sample(ctx context.Context, master *redis.Client, most int64, visit func(names []string)) (size, seen int64, err error) {
	s := &scan{pace: c.budget.newPace()}
	client := s.client(master.Options())
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	if size, err = conn.DBSize(ctx).Result(); err != nil {
		return 0, 0, c.nodes.outage(ctx, fmt.Errorf("count the keys: %w", err))
	}
	for cursor, first := uint64(0), true; (cursor != 0 || first) && seen < most; first = false {
		var names []string
		names, cursor, err = conn.Scan(ctx, cursor, "", s.pace.bucketsDue()).Result()
		if err != nil {
			return size, seen, c.nodes.outage(ctx, err)
		}
		s.pace.scanned(s.watch.last())
		visit(names)
		seen += int64(len(names))
		if err := s.pace.rest(ctx); err != nil {
			return size, seen, c.nodes.outage(ctx, err)
		}
	}
	return size, seen, nil
}

// Sample calls visit with about a number of names of keys, evenly from all masters and in pages, and
// returns how many names there are. It is as gentle as Estimate, whose errors it has. visit runs in
// the caller's goroutine and may see a name twice.
func (c *Contents) Sample(ctx context.Context, most int64, visit func(names []string)) (total int64, err error) {
	err = c.share(ctx, most, func(master *redis.Client, part int64) error {
		size, _, err := c.sample(ctx, master, part, visit)
		total += size
		return err
	})
	return total, err
}

// A Present is the state of a key in Redis.
type Present struct {
	Exists bool
	// Born is when the lease of the entry was taken, by the clock of Redis. Zero: unknown, since it
	// is not an entry of package cache.
	Born time.Time
}

// Present looks at a key. The account needs +get, and no right to the key's contents beyond that.
// An error is an *Outage.
func (c *Contents) Present(ctx context.Context, key string) (Present, error) {
	text, err := c.nodes.client.Get(ctx, key).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return Present{}, nil
	case firstWord(err) == "WRONGTYPE":
		return Present{Exists: true}, nil
	case err != nil:
		return Present{}, c.nodes.outage(ctx, err)
	}
	var entry struct {
		Born int64 `json:"b"` // microseconds since 1970
	}
	// In format 2 the value follows.
	if json.NewDecoder(bytes.NewReader(text)).Decode(&entry) != nil || entry.Born == 0 {
		return Present{Exists: true}, nil
	}
	return Present{Exists: true, Born: time.UnixMicro(entry.Born).UTC()}, nil
}

// TTL returns how long a key still lives: -1 if it does not expire, and -2 if it does not exist.
// The account needs +pttl. An error is an *Outage.
func (c *Contents) TTL(ctx context.Context, key string) (time.Duration, error) {
	ttl, err := c.nodes.client.PTTL(ctx, key).Result()
	return ttl, c.nodes.outageOrNil(ctx, err)
}

// Heads returns the first HeadBytes bytes of texts in Redis, "" for a key that does not exist. The
// account needs +getrange. An error is an *Outage.
func (c *Contents) Heads(ctx context.Context, keys []string) ([]string, error) {
	heads := make([]string, len(keys))
	cmds, err := c.nodes.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.GetRange(ctx, key, 0, HeadBytes-1)
		}
		return nil
	})
	for i, cmd := range cmds {
		switch text, failed := cmd.(*redis.StringCmd).Result(); {
		case failed == nil:
			heads[i] = text
		case firstWord(failed) == "WRONGTYPE":
			heads[i] = failed.Error() // the key has another type
			if errors.Is(err, failed) {
				err = nil
			}
		default:
			return nil, c.nodes.outage(ctx, failed)
		}
	}
	return heads, c.nodes.outageOrNil(ctx, err)
}

// Time returns the time of the server that has a key. Present.Born is by the same clock.
// The account needs +time. An error is an *Outage.
func (c *Contents) Time(ctx context.Context, key string) (time.Time, error) {
	command := newTimeCommand(ctx, key)
	err := c.nodes.client.Process(ctx, command)
	return command.Val(), c.nodes.outageOrNil(ctx, err)
}

const (
	reportPage = 1000 // reports a command
	// reportsRead bounds what is read of a stream that others let grow: what readers leave there,
	// and some that XADD trims later.
	reportsRead = protocol.MaxReports + 10*reportPage
)

// Reports calls visit with the reports of readers and their times by the clock of Redis, newest
// first, down to those from since on. It reads at most as many as readers keep, and skips entries
// that are not reports. The account needs +xrevrange %R~unstale:evicted. An error is an *Outage.
func (c *Contents) Reports(ctx context.Context, since time.Time, visit func(protocol.Report, time.Time)) error {
	from, to := strconv.FormatInt(max(since.UnixMilli(), 0), 10), "+"
	for read := 0; read < reportsRead; read += reportPage {
		page, err := c.nodes.client.XRevRangeN(ctx, protocol.ReportKey, to, from, reportPage).Result()
		if err != nil {
			return c.nodes.outage(ctx, err)
		}
		for _, m := range page {
			if r, err := protocol.ParseReport(fieldsOf(m)); err == nil {
				visit(r, reportTime(m.ID))
			}
		}
		if len(page) < reportPage {
			return nil
		}
		to = "(" + page[len(page)-1].ID
	}
	return nil
}

// fieldsOf returns the fields of an entry of a stream.
func fieldsOf(m redis.XMessage) map[string]string {
	fields := make(map[string]string, len(m.Values))
	for name, value := range m.Values {
		fields[name] = fmt.Sprint(value)
	}
	return fields
}

// reportTime returns the time in the id of an entry, which Redis makes.
func reportTime(id string) time.Time {
	millis, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(millis, 10, 64)
	return time.UnixMilli(n).UTC()
}

// Shadows returns the shadow reads that readers reported after the entry of the stream with the
// given ID, oldest first, and the ID of the last one. It reads at most twice as many entries as the
// stream keeps, and skips entries that are not reports. The account needs +xrange
// %R~unstale:shadow. An error is an *Outage.
func (c *Contents) Shadows(ctx context.Context, after string) (reports []protocol.Shadow, last string, err error) {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	page, err := c.nodes.client.XRangeN(ctx, protocol.ShadowKey, from, "+", 2*protocol.MaxShadows).Result()
	if err != nil {
		return nil, after, c.nodes.outage(ctx, err)
	}
	for _, m := range page {
		after = m.ID
		if s, err := protocol.ParseShadow(fieldsOf(m)); err == nil {
			reports = append(reports, s)
		}
	}
	return reports, after, nil
}

// EntryDigest returns the SHA-1 of a text in Redis in hexadecimal, or "" if the key has none. An
// error is an *Outage.
func (c *Contents) EntryDigest(ctx context.Context, key string) (string, error) {
	text, err := c.nodes.client.Get(ctx, key).Bytes()
	switch {
	case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
		return "", nil
	case err != nil:
		return "", c.nodes.outage(ctx, err)
	}
	sum := sha1.Sum(text)
	return hex.EncodeToString(sum[:]), nil
}
