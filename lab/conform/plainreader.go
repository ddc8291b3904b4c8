package conform

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/sleep"
	"github.com/unstale/unstale/lab/rig"
	"github.com/unstale/unstale/protocol"
)

// A Plant is a bug of the plain reader that the judge must find.
type Plant struct {
	Name, Breaks string
	Rule         string // that the judge names
	memory       bool   // the reader needs an in-process cache to have it
}

// The names of plants.
const (
	bareFill       = "bare-fill"
	leftLease      = "left-lease"
	ownLease       = "own-lease"
	lateStamps     = "late-stamps"
	ignoredGap     = "ignored-gap"
	characterGlobs = "character-globs"
	textHash       = "text-hash"
)

// Plants are all plants.
var Plants = []Plant{
	{bareFill, "it stores with a plain SET", "fill", false},
	{leftLease, "it gives no lease back", "release", false},
	{ownLease, "its leases have a name that no worker unlinks", "names", false},
	{lateStamps, "it reads tag versions after the load", "stamps", false},
	{ignoredGap, "it does not compare the numbers of messages", "gap", true},
	{characterGlobs, "? in a pattern is a character, not a byte", "glob", true},
	{textHash, "it hashes an entry after decoding it as text", "hash", false},
}

// A plainReader is a reader that was written from docs/protocol.md alone. It takes the shortest way
// that is right: it shares no loads, and stores no stale, sliding or negative values.
type plainReader struct {
	hello  Line
	client *redis.Client
	plant  string
	memory *plainMemory // or nil
	life   context.Context
	tasks  sync.WaitGroup // searches for lost leases
}

func newPlainReader(ctx context.Context, hello Line, o ClientOptions) (reader, error) {
	options, err := redis.ParseURL(hello.Redis)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(rig.Silence{})
	options.MaxRetries, options.ReadTimeout = -1, time.Duration(hello.Timeout)*time.Millisecond
	r := &plainReader{hello: hello, client: redis.NewClient(options), plant: o.Plant, life: ctx}
	if o.L1 {
		r.memory = newPlainMemory(hello, o.Plant)
		r.tasks.Go(func() { r.memory.listen(ctx, r.client) })
	}
	return r, nil
}

// Close waits for the background, which ends with the context of newPlainReader.
func (r *plainReader) Close() error {
	r.tasks.Wait()
	return r.client.Close()
}

func (r *plainReader) applied() (int64, bool) { return r.memory.applied() }

func (r *plainReader) get(ctx context.Context, keys, tags []string, load loader) (map[string]string, error) {
	values := map[string]string{}
	for _, key := range keys {
		value, ok, err := r.one(ctx, key, tags, load)
		if err != nil {
			return nil, err
		}
		if ok {
			values[key] = value
		}
	}
	return values, nil
}

// A plainClaim is a lease, and what was read with it.
type plainClaim struct {
	lease    string
	taken    time.Time
	versions map[string]string
	mark     plainMark
}

// one reads a key: from memory, from Redis, or by a load.
func (r *plainReader) one(ctx context.Context, key string, tags []string, load loader) (value string, ok bool, err error) {
	if value, ok := r.memory.value(key, tags); ok {
		return value, true, nil
	}
	mark := r.memory.mark()
	text, versions, life, err := r.look(ctx, key, tags)
	if err != nil {
		return valueOf(ctx, key, load)
	}
	value, state := parsePlain(text, tags, versions, life.now)
	if state == usableEntry {
		r.memory.put(key, value, tags, mark)
		return value, true, nil
	}
	if state == foreignEntry {
		return valueOf(ctx, key, load)
	}
	claim, found, err := r.claim(ctx, key, text, tags, life)
	switch {
	case err != nil || claim == nil && found == nil:
		return valueOf(ctx, key, load)
	case found != nil:
		return *found, true, nil
	}
	value, ok, err = valueOf(ctx, key, load)
	if err != nil || !ok {
		r.giveBack(ctx, key, claim.lease, nil)
		return value, ok, err
	}
	if r.plant == lateStamps {
		claim.versions, _ = r.versions(ctx, tags)
	}
	if !r.store(ctx, key, value, tags, claim) {
		r.giveBack(ctx, key, claim.lease, text)
		r.memory.drop(key)
	}
	return value, ok, nil
}

// valueOf loads a key.
func valueOf(ctx context.Context, key string, load loader) (value string, ok bool, err error) {
	values, err := load(ctx, []string{key})
	value, ok = values[key]
	return value, ok, err
}

// A plainLife is the time of Redis in milliseconds, and the TTL of a lease.
type plainLife struct{ now, lease int64 }

// look reads an entry, its tag versions, and where the worker writes, in one round trip. text is nil
// if there is no entry. Nothing may be used of a server that a worker has left.
func (r *plainReader) look(ctx context.Context, key string, tags []string) (text []byte, versions map[string]string, life plainLife, err error) {
	pipe := r.client.Pipeline()
	got, clock, alive := pipe.Get(ctx, key), pipe.Time(ctx), pipe.HGet(ctx, protocol.AliveKey(""), r.hello.Source)
	stamps := make([]*redis.StringCmd, len(tags))
	for i, tag := range tags {
		stamps[i] = pipe.Get(ctx, protocol.StampKey(tag))
	}
	_, _ = pipe.Exec(ctx) // each command has its error
	text, err = got.Bytes()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		text, err = []byte(`{"f":"no string"}`), nil
	}
	if err != nil && !errors.Is(err, redis.Nil) || clock.Err() != nil {
		return nil, nil, life, errors.Join(err, clock.Err())
	}
	life = plainLife{clock.Val().UnixMilli(), r.hello.Lease}
	if field, err := protocol.ParseAlive(alive.Val()); err == nil {
		if clock.Val().UnixMicro()-field.Time > protocol.AliveLife {
			return nil, nil, life, errors.New("no worker writes to this server")
		}
		life.lease = min(life.lease, field.Lease)
	}
	versions = map[string]string{}
	for i, tag := range tags {
		versions[tag] = stamps[i].Val()
	}
	return text, versions, life, nil
}

// The states of what Redis has.
type plainState int

const (
	noEntry plainState = iota
	usableEntry
	foreignEntry
)

// parsePlain reads an entry of format 1.
func parsePlain(text []byte, tags []string, versions map[string]string, now int64) (value string, state plainState) {
	var e struct {
		entryText
		Codec  string `json:"c"`
		Format any    `json:"f"`
	}
	err := json.Unmarshal(text, &e)
	if e.Format != nil && e.Format != 1.0 || e.Codec != "" && e.Codec != "gzip" {
		return "", foreignEntry
	}
	if err == nil && e.Codec == "gzip" {
		err = unpack(&e.Value)
	}
	if err != nil || json.Unmarshal(e.Value, &value) != nil || e.Expiry <= now {
		return "", noEntry
	}
	for _, tag := range tags {
		if e.Tags[tag] == "" {
			return "", noEntry
		}
	}
	for tag, version := range e.Tags {
		if versions[tag] != version {
			return "", noEntry
		}
	}
	return value, usableEntry
}

// unpack replaces the base64 of a compressed value with the value.
func unpack(value *json.RawMessage) error {
	text := ""
	if err := json.Unmarshal(*value, &text); err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil {
		return err
	}
	*value, err = io.ReadAll(unzipped)
	return err
}

// claim takes the lease of a key. It returns a value if another reader has stored one meanwhile, and
// neither if nothing may be stored.
func (r *plainReader) claim(ctx context.Context, key string, text []byte, tags []string, life plainLife) (c *plainClaim, found *string, err error) {
	hash, token, holders, left := "", rand.Text(), 0, int64(0)
	if text != nil {
		hash = r.hash(text)
	}
	began := time.Now()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		mark, sent := r.memory.mark(), time.Now()
		pipe := r.client.Pipeline()
		asked := pipe.Eval(ctx, protocol.LeaseScript, r.names(key), token, life.lease, hash)
		stamps := r.stamp(ctx, pipe, tags)
		if _, err := pipe.Exec(ctx); err != nil {
			r.search(key, token)
			return nil, nil, err
		}
		reply, _ := asked.Slice()
		answer, _ := reply[1].(string)
		wait, _ := reply[1].(int64)
		versions := versionsOf(tags, stamps)
		switch reply[0] {
		case "lease":
			return &plainClaim{answer, sent, versions, mark}, nil, nil
		case "held":
			return nil, nil, nil
		case "value":
			value, state := parsePlain([]byte(answer), tags, versions, life.now+time.Since(began).Milliseconds())
			if state == usableEntry {
				r.memory.put(key, value, tags, mark)
				return nil, &value, nil
			}
			if hash = r.hash([]byte(answer)); state == foreignEntry {
				return nil, nil, nil
			}
			holders++ // who stores what nobody can use
		case "taken":
			if wait > left {
				holders++
			}
			left = wait
			if err := sleep.For(ctx, pause); err != nil {
				return nil, nil, err
			}
		}
		if holders > 4 || time.Since(began).Milliseconds() > life.lease {
			return nil, nil, nil
		}
	}
}

// names returns the lease, the tombstone and the value of a key.
func (r *plainReader) names(key string) []string {
	lease, _ := protocol.LeaseKey(key)
	hold, _ := protocol.HoldKey(key)
	if r.plant == ownLease {
		lease = strings.Replace(lease, "fill", "mine", 1)
	}
	return []string{lease, hold, key}
}

// hash identifies an entry that was read.
func (r *plainReader) hash(text []byte) string {
	if r.plant == textHash {
		return digestOf(string([]rune(string(text))))
	}
	return digestOf(string(text))
}

// stamp adds the requests for tag versions to a pipeline.
func (r *plainReader) stamp(ctx context.Context, pipe redis.Pipeliner, tags []string) []*redis.Cmd {
	asked := make([]*redis.Cmd, len(tags))
	for i, tag := range tags {
		stamp := protocol.StampKey(tag)
		hold, _ := protocol.HoldKey(stamp)
		asked[i] = pipe.Eval(ctx, protocol.StampScript, []string{stamp, hold}, rand.Text(), r.hello.TTL+time.Hour.Milliseconds())
	}
	return asked
}

func versionsOf(tags []string, asked []*redis.Cmd) map[string]string {
	versions := map[string]string{}
	for i, tag := range tags {
		versions[tag], _ = asked[i].Text()
	}
	return versions
}

// versions returns the versions of tags now.
func (r *plainReader) versions(ctx context.Context, tags []string) (map[string]string, error) {
	pipe := r.client.Pipeline()
	asked := r.stamp(ctx, pipe, tags)
	_, err := pipe.Exec(ctx)
	return versionsOf(tags, asked), err
}

// store fills Redis and the memory. It reports whether Redis has stored the value.
func (r *plainReader) store(ctx context.Context, key, value string, tags []string, c *plainClaim) bool {
	for _, tag := range tags {
		if c.versions[tag] == "" {
			return false // a tombstone
		}
	}
	_, born, _ := strings.Cut(c.lease, ":")
	birth, _ := strconv.ParseInt(born, 10, 64)
	entry := struct {
		Expiry int64             `json:"e"`
		Birth  int64             `json:"b"`
		Tags   map[string]string `json:"t,omitempty"`
		Value  string            `json:"v"`
	}{birth/1000 + time.Since(c.taken).Milliseconds() + r.hello.TTL, birth, c.versions, value}
	text, err := json.Marshal(entry)
	if err != nil {
		return false
	}
	if r.plant == bareFill {
		err := r.client.Set(ctx, key, text, time.Duration(r.hello.TTL)*time.Millisecond).Err()
		r.giveBack(ctx, key, c.lease, nil)
		return err == nil
	}
	pipe := r.client.Pipeline()
	stored := pipe.Eval(ctx, protocol.FillScript, r.names(key), c.lease, text, r.hello.TTL)
	stamps := make([]*redis.StringCmd, len(tags))
	for i, tag := range tags {
		stamps[i] = pipe.Get(ctx, protocol.StampKey(tag))
	}
	_, _ = pipe.Exec(ctx) // each command has its error
	if n, err := stored.Int(); err != nil || n != 1 {
		return false
	}
	if !slices.ContainsFunc(tags, func(tag string) bool { return stamps[slices.Index(tags, tag)].Val() != c.versions[tag] }) {
		r.memory.put(key, value, tags, c.mark)
	}
	return true
}

// giveBack releases a lease, and removes an entry that was read before.
func (r *plainReader) giveBack(ctx context.Context, key, lease string, text []byte) {
	if r.plant == leftLease {
		return
	}
	keys, args := r.names(key)[:1], []any{lease}
	if text != nil {
		keys, args = append(keys, key), append(args, digestOf(string(text)))
	}
	if r.client.Eval(ctx, protocol.ReleaseScript, keys, args...).Err() != nil {
		token, _, _ := strings.Cut(lease, ":")
		r.search(key, token)
	}
}

// search looks for a lease whose request or release had no answer, until Redis has answered twice
// and the lease is gone.
func (r *plainReader) search(key, token string) {
	if r.plant == leftLease {
		return
	}
	r.tasks.Go(func() {
		for answers := 0; answers < 2; {
			text, err := r.client.Get(r.life, r.names(key)[0]).Result()
			switch {
			case errors.Is(err, redis.Nil), err == nil && !bytes.HasPrefix([]byte(text), []byte(token+":")):
				if answers++; answers == 2 {
					return
				}
			case err == nil:
				answers = max(answers, 1)
				_ = r.client.Eval(r.life, protocol.ReleaseScript, r.names(key)[:1], text).Err() // what stays is found again
				continue
			}
			if sleep.For(r.life, time.Duration(r.hello.Timeout)*time.Millisecond) != nil {
				return
			}
		}
	})
}

// String names a plant for the help.
func (p Plant) String() string { return fmt.Sprintf("%s (rule %s)", p.Breaks, p.Rule) }
