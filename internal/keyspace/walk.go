package keyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/redisclient"
)

// A KeyInfo is Redis's report about one key.
type KeyInfo struct {
	Name  string
	TTL   time.Duration // NoTTL: none; negative otherwise: not told
	Bytes int64         // in memory, of a large collection by a sample; negative: not told
	Type  string        // "": not told
	Freq  int64         // how often it is used, 0 to 255 on a logarithmic scale; negative: not told
	Idle  time.Duration // since it was last used, in seconds, so it is at least that old; negative: not told, or longer than the server runs
}

// NoTTL is the TTL of a key that never expires.
const NoTTL = -1 * time.Nanosecond

// notTold is a KeyInfo's TTL that Redis does not tell.
const notTold = -2 * time.Nanosecond

// Walked is the extent of a walk.
type Walked struct {
	Total int64 // names that there are; 0 if Redis does not tell (DBSIZE)
	Seen  int64 // names that were looked at, one that was returned twice counted twice
	All   bool  // the walk came to the end of every master
	// rules that the account lacks, such as +pttl, or %R~* where it is refused single keys
	Denied     []string
	Hidden     int64  // names without all details, since the account may not read them
	HiddenName string // one of them
	// rules of details that are missing for some or all keys: +pttl, +memory|usage, +type
	Untold []string
	// addresses of the masters that failed; some or all of their keys are missing
	Away []string
	// the policy of maxmemory is not one of -lfu, so it is unknown how often keys are used
	NoLFU bool
}

// walkChunk is the number of keys per pipeline: Redis serves no other client meanwhile.
const walkChunk = 24

// walkDetails are the details of each key, each with a command that the account may lack.
var walkDetails = []struct {
	rule string
	args func(name string) []any
	read func(*KeyInfo, any)
}{
	{"+pttl", func(name string) []any { return []any{"pttl", name} }, func(i *KeyInfo, v any) {
		switch ms, _ := v.(int64); {
		case ms == -1:
			i.TTL = NoTTL
		case ms >= 0:
			i.TTL = time.Duration(ms) * time.Millisecond
		}
	}},
	{"+memory|usage", func(name string) []any { return []any{"memory", "usage", name} }, func(i *KeyInfo, v any) { i.Bytes = toInt(v) }},
	{"+type", func(name string) []any { return []any{"type", name} }, func(i *KeyInfo, v any) { i.Type, _ = v.(string) }},
	// Redis knows one of these: the first with a policy of -lfu, the second with any other
	{freqRule, func(name string) []any { return []any{"object", "freq", name} }, func(i *KeyInfo, v any) { i.Freq = toInt(v) }},
	{idleRule, func(name string) []any { return []any{"object", "idletime", name} }, func(i *KeyInfo, v any) { i.Idle = time.Duration(toInt(v)) * time.Second }},
}

const (
	freqRule = "+object|freq"
	idleRule = "+object|idletime"
)

func toInt(v any) int64 {
	if n, ok := v.(int64); ok {
		return n
	}
	return -1
}

// Walk checks at most limit keys, evenly on all masters, and calls visit with some at a time, which
// it must not keep. It takes at most Options.SweepShare of Redis time and changes nothing, not even
// the access times of keys. It leaves out keys that expire meanwhile. The error is an *Outage, one
// for each unavailable master while the others are checked, or that of ctx. Walked then has what
// was seen before it.
func (c *Contents) Walk(ctx context.Context, limit int64, visit func([]KeyInfo)) (Walked, error) {
	w := &walk{contents: c, visit: visit, skip: map[string]bool{}}
	masters, err := c.nodes.masters(ctx)
	if err == nil {
		err = c.expectWhole(ctx)
	}
	if err != nil {
		return w.Walked, err
	}
	w.All = true
	var away error
	for _, master := range masters {
		err := w.master(ctx, master, max(limit/int64(len(masters)), 1))
		if err == nil {
			continue
		}
		w.All = false
		if ctx.Err() != nil {
			return w.Walked, ctx.Err()
		}
		w.Away = append(w.Away, master.Options().Addr)
		away = errors.Join(away, c.nodes.outage(ctx, err))
	}
	return w.Walked, away
}

// A walk is one Walk under way.
type walk struct {
	Walked
	contents *Contents
	visit    func([]KeyInfo)
	skip     map[string]bool // rules of details that are no longer requested
}

// master checks limit keys of one master, over one connection.
func (w *walk) master(ctx context.Context, master *redis.Client, limit int64) error {
	s := &scan{pace: w.contents.budget.newPace(), sweep: &sweep{}}
	client := s.client(master.Options())
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	defer context.AfterFunc(ctx, s.watch.interrupt)()
	if err := s.measure(ctx, conn); err != nil {
		return err
	}
	w.Total += s.size
	uptime, err := w.uptime(ctx, conn)
	if err != nil {
		return err
	}
	seen := int64(0)
	for cursor, first := uint64(0), true; cursor != 0 || first; first = false {
		if seen >= limit {
			w.All = false
			return nil
		}
		names, next, err := conn.Scan(ctx, cursor, "", s.pace.bucketsDue()).Result()
		if err != nil {
			return err
		}
		s.pace.scanned(max(s.watch.last()-s.rtt, 0))
		if left := limit - seen; int64(len(names)) > left {
			names, w.All = names[:left], false
		}
		seen += int64(len(names))
		for some := range slices.Chunk(names, walkChunk) {
			if err := s.pace.rest(ctx); err != nil {
				return err
			}
			if err := w.readDetails(ctx, conn, s, uptime, some); err != nil {
				return err
			}
		}
		if err := s.pace.rest(ctx); err != nil {
			return err
		}
		cursor = next
	}
	return nil
}

// uptime returns for how long the server runs. Redis misreads the times of keys that it stored under
// a policy of -lfu, so a longer idle time is not one. Without +info, none is requested.
func (w *walk) uptime(ctx context.Context, conn *redis.Conn) (time.Duration, error) {
	text, err := conn.Info(ctx, "server").Result()
	if err != nil {
		if firstWord(err) == "" {
			return 0, err
		}
		w.refused(idleRule, err)
		return 0, nil
	}
	n, err := strconv.ParseInt(redisclient.Facts(text)["uptime_in_seconds"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("uptime_in_seconds of INFO server: %w", err)
	}
	return time.Duration(n) * time.Second, nil
}

// readDetails asks for the details of some keys in one pipeline.
func (w *walk) readDetails(ctx context.Context, conn *redis.Conn, s *scan, uptime time.Duration, names []string) error {
	pipe := conn.Pipeline()
	asked := make([][]*redis.Cmd, len(names))
	for i, name := range names {
		asked[i] = make([]*redis.Cmd, len(walkDetails))
		for d, detail := range walkDetails {
			if !w.skip[detail.rule] {
				asked[i][d] = redis.NewCmd(ctx, detail.args(name)...)
				_ = pipe.Process(ctx, asked[i][d]) // only queues
			}
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx) // each command has its own error
		s.pace.spent(max(s.watch.last()-s.rtt, 0))
	}
	infos := make([]KeyInfo, 0, len(names))
	for i, name := range names {
		info := KeyInfo{Name: name, TTL: notTold, Bytes: -1, Freq: -1, Idle: notTold}
		there, hidden := true, false
		for d, c := range asked[i] {
			if c == nil {
				continue
			}
			v, err := c.Result()
			switch {
			case err == nil:
				walkDetails[d].read(&info, v)
			case errors.Is(err, redis.Nil):
				there = false
			case firstWord(err) == "":
				return err
			default:
				hidden = w.refused(walkDetails[d].rule, err) || hidden
			}
		}
		if info.Idle > uptime {
			info.Idle = notTold
		}
		if hidden {
			w.Hidden++
			w.HiddenName = name
		}
		if there && info.Type != "none" {
			infos = append(infos, info)
		}
	}
	w.Seen += int64(len(infos))
	w.visit(infos)
	return nil
}

// wholeCache is the rule of an account that may read every key.
const wholeCache = "%R~*"

// refused records that a detail is missing, and reports whether that concerns one key alone. A
// command that is refused is refused for all keys, and not requested again.
func (w *walk) refused(rule string, err error) (hidden bool) {
	denied, ok := errors.AsType[*denial](err)
	lacks := rule
	switch {
	case ok && strings.HasPrefix(denied.rule, "~"):
		lacks, hidden = wholeCache, true
	case ok:
		lacks = denied.rule
	case rule == freqRule:
		w.NoLFU = true
		lacks = ""
	case rule == idleRule: // a policy of -lfu
		lacks = ""
	}
	w.skip[rule] = w.skip[rule] || !hidden
	if lacks == "" {
		return false
	}
	if !slices.Contains(w.Denied, lacks) {
		w.Denied = append(w.Denied, lacks)
	}
	if !slices.Contains(w.Untold, rule) {
		w.Untold = append(w.Untold, rule)
	}
	return hidden
}
