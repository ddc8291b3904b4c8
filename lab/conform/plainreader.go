package conform

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// String names a plant for the help.
func (p Plant) String() string { return fmt.Sprintf("%s (rule %s)", p.Breaks, p.Rule) }

// A plainReader is a reader that was written from docs/protocol.md alone. It takes the shortest way
// that is right: it shares no loads, and stores no stale, sliding or negative values.
type plainReader struct {
	hello   Line
	client  redis.UniversalClient
	plant   string
	memory  *plainMemory
	life    context.Context
	timeout time.Duration  // of a command
	tasks   sync.WaitGroup // the subscription, and searches for lost leases

	refusals atomic.Uint64 // of fills
}

func newPlainReader(ctx context.Context, hello Line, o ClientOptions) (reader, error) {
	options, err := redis.ParseURL(hello.Redis)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(rig.Silence{})
	timeout := time.Duration(hello.Timeout) * time.Millisecond
	options.MaxRetries, options.ReadTimeout = -1, timeout
	r := &plainReader{hello: hello, client: hello.connect(options), plant: o.Plant, memory: newPlainMemory(hello, o.Plant), life: ctx, timeout: timeout}
	if o.L1 { // without a subscription the memory stays closed
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

func (r *plainReader) refused() uint64 { return r.refusals.Load() }

func (r *plainReader) get(ctx context.Context, l Line, load loader) (values map[string]string, from string, err error) {
	values = map[string]string{}
	for _, key := range l.Keys {
		q := &plainRead{plainReader: r, key: key, tags: l.Tags, from: "redis"}
		value, ok, err := q.run(ctx, load)
		if err != nil {
			return nil, "", err
		}
		if ok {
			values[key] = value
		}
		from = q.from
	}
	return values, from, nil
}

// A plainRead reads one key.
type plainRead struct {
	*plainReader
	key  string
	tags []string
	from string // the source, for a result

	text     string            // the entry that was found; empty: none
	versions map[string]string // of tags, by the latest answer
	clock    int64             // of Redis when looked began, in milliseconds
	looked   time.Time
	longest  int64     // TTL of the lease, in milliseconds
	mark     plainMark // before the latest question
	lease    string    // empty: nothing may be stored
	asked    time.Time // when the lease was asked for
}

// run reads from memory, from Redis, or by a load.
func (q *plainRead) run(ctx context.Context, load loader) (value string, ok bool, err error) {
	if value, ok := q.memory.value(q.key, q.tags); ok {
		q.from = "memory"
		return value, true, nil
	}
	value, state := q.look(ctx)
	if state == uselessEntry {
		value, state = q.claim(ctx)
	}
	if state == usableEntry {
		q.memory.put(q.key, value, q.tags, q.mark)
		return value, true, nil
	}
	q.from = "load"
	values, err := load(ctx, []string{q.key})
	value, ok = values[q.key]
	switch {
	case q.lease == "":
	case err != nil || !ok:
		q.giveBack(ctx, "")
	case !q.store(ctx, value):
		q.giveBack(ctx, q.text)
		q.memory.drop(q.key)
	}
	return value, ok, err
}

// The states of what Redis has.
type plainState int

const (
	uselessEntry plainState = iota // or none
	usableEntry
	foreignEntry // or a server that must not be used: nothing may be stored
)

// look reads the entry, its tag versions, and where the worker writes, in one round trip. Nothing
// may be used of a server that a worker has left.
func (q *plainRead) look(ctx context.Context) (value string, state plainState) {
	q.mark = q.memory.mark()
	pipe := q.client.Pipeline()
	now, alive, got := pipe.Time(ctx), pipe.HGet(ctx, protocol.AliveKey(""), q.hello.Source), pipe.Get(ctx, q.key)
	versions := q.readVersions(ctx, pipe)
	_, _ = pipe.Exec(ctx) // each command has its error
	if err := got.Err(); err != nil && !errors.Is(err, redis.Nil) || now.Err() != nil {
		return "", foreignEntry
	}
	q.looked, q.clock, q.longest = time.Now(), now.Val().UnixMilli(), q.hello.Lease
	if field, err := protocol.ParseAlive(alive.Val()); err == nil {
		if now.Val().UnixMicro()-field.Time > protocol.AliveLife {
			return "", foreignEntry
		}
		q.longest = min(q.longest, field.Lease)
	}
	q.text, q.versions = got.Val(), versions()
	return q.parse(q.text)
}

// parse reads an entry of format 1.
func (q *plainRead) parse(text string) (value string, state plainState) {
	var e struct {
		entryText
		Codec  string `json:"c"`
		Format any    `json:"f"`
	}
	err := json.Unmarshal([]byte(text), &e)
	if e.Format != nil && e.Format != 1.0 || e.Codec != "" && e.Codec != "gzip" {
		return "", foreignEntry
	}
	if err == nil && e.Codec == "gzip" {
		err = unpack(&e.Value)
	}
	now := q.clock + time.Since(q.looked).Milliseconds()
	if err != nil || json.Unmarshal(e.Value, &value) != nil || e.Expiry <= now {
		return "", uselessEntry
	}
	for _, tag := range q.tags {
		if e.Tags[tag] == "" {
			return "", uselessEntry
		}
	}
	for tag, version := range e.Tags {
		if q.versions[tag] != version {
			return "", uselessEntry
		}
	}
	return value, usableEntry
}

// unpack replaces the base64 of a compressed value with the value.
func unpack(value *json.RawMessage) error {
	var packed []byte
	if err := json.Unmarshal(*value, &packed); err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	*value, err = io.ReadAll(unzipped)
	return err
}

// claim asks for the lease until it gets it, or finds a value that another reader has stored
// meanwhile, or has waited long enough.
func (q *plainRead) claim(ctx context.Context) (value string, state plainState) {
	hash, token, holders, left := "", rand.Text(), 0, int64(0)
	if q.text != "" {
		hash = q.hash(q.text)
	}
	for pause := 2 * time.Millisecond; holders <= 4 && time.Since(q.looked).Milliseconds() <= q.longest; pause = min(2*pause, 100*time.Millisecond) {
		q.mark, q.asked = q.memory.mark(), time.Now()
		pipe := q.client.Pipeline()
		asked := pipe.Eval(ctx, protocol.LeaseScript, q.names(), token, q.longest, hash)
		versions := q.makeVersions(ctx, pipe)
		if _, err := pipe.Exec(ctx); err != nil {
			q.search(token)
			return "", foreignEntry
		}
		reply, _ := asked.Slice()
		text, _ := reply[1].(string)
		wait, _ := reply[1].(int64)
		q.versions = versions()
		switch reply[0] {
		case "lease":
			q.lease = text
			return "", uselessEntry
		case "held":
			return "", foreignEntry
		case "value":
			if value, state = q.parse(text); state != uselessEntry {
				return value, state
			}
			hash = q.hash(text)
			holders++ // who stores what nobody can use
		case "taken":
			if wait > left {
				holders++
			}
			left = wait
			if sleep.For(ctx, pause) != nil {
				return "", foreignEntry
			}
		}
	}
	return "", foreignEntry
}

// names returns the lease, the tombstone and the value of the key.
func (q *plainRead) names() []string {
	lease, _ := protocol.LeaseKey(q.key)
	hold, _ := protocol.HoldKey(q.key)
	if q.plant == ownLease {
		lease = strings.Replace(lease, "fill", "mine", 1)
	}
	return []string{lease, hold, q.key}
}

// hash identifies an entry that was read.
func (q *plainRead) hash(text string) string {
	if q.plant == textHash {
		text = string([]rune(text))
	}
	return digestOf(text)
}

// readVersions adds questions for tag versions to a pipeline. come returns the answers.
func (q *plainRead) readVersions(ctx context.Context, pipe redis.Pipeliner) (come func() map[string]string) {
	return q.askVersions(func(stamp string) *redis.Cmd { return pipe.Do(ctx, "GET", stamp) })
}

// makeVersions is like readVersions. Tags without a version get one.
func (q *plainRead) makeVersions(ctx context.Context, pipe redis.Pipeliner) (come func() map[string]string) {
	return q.askVersions(func(stamp string) *redis.Cmd {
		hold, _ := protocol.HoldKey(stamp)
		return pipe.Eval(ctx, protocol.StampScript, []string{stamp, hold}, rand.Text(), q.hello.TTL+time.Hour.Milliseconds())
	})
}

func (q *plainRead) askVersions(ask func(stamp string) *redis.Cmd) (come func() map[string]string) {
	asked := map[string]*redis.Cmd{}
	for _, tag := range q.tags {
		asked[tag] = ask(protocol.StampKey(tag))
	}
	return func() map[string]string {
		versions := map[string]string{}
		for tag, answer := range asked {
			versions[tag], _ = answer.Text()
		}
		return versions
	}
}

// store fills Redis and the memory. It reports whether Redis has stored the value.
func (q *plainRead) store(ctx context.Context, value string) bool {
	if q.plant == lateStamps {
		pipe := q.client.Pipeline()
		versions := q.makeVersions(ctx, pipe)
		_, _ = pipe.Exec(ctx) // a missing version stores nothing
		q.versions = versions()
	}
	for _, version := range q.versions {
		if version == "" {
			return false // a tombstone
		}
	}
	_, born, _ := strings.Cut(q.lease, ":")
	birth, _ := strconv.ParseInt(born, 10, 64)
	e := entryText{Expiry: birth/1000 + time.Since(q.asked).Milliseconds() + q.hello.TTL, Birth: birth, Tags: q.versions}
	e.Value, _ = json.Marshal(value) // a text has JSON, and so has the entry
	text, _ := json.Marshal(e)
	if q.plant == bareFill {
		err := q.client.Set(ctx, q.key, text, time.Duration(q.hello.TTL)*time.Millisecond).Err()
		q.giveBack(ctx, "")
		return err == nil
	}
	pipe := q.client.Pipeline()
	stored := pipe.Eval(ctx, protocol.FillScript, q.names(), q.lease, text, q.hello.TTL)
	versions := q.readVersions(ctx, pipe)
	_, _ = pipe.Exec(ctx) // each command has its error
	if n, err := stored.Int(); err != nil || n != 1 {
		if err == nil {
			q.refusals.Add(1)
		}
		return false
	}
	if maps.Equal(versions(), q.versions) {
		q.memory.put(q.key, value, q.tags, q.mark)
	}
	return true
}

// giveBack releases the lease, and removes an entry that was read before.
func (q *plainRead) giveBack(ctx context.Context, text string) {
	if q.plant == leftLease {
		return
	}
	keys, args := q.names()[:1], []any{q.lease}
	if text != "" {
		keys, args = append(keys, q.key), append(args, digestOf(text))
	}
	if q.client.Eval(ctx, protocol.ReleaseScript, keys, args...).Err() != nil {
		token, _, _ := strings.Cut(q.lease, ":")
		q.search(token)
	}
}

// search looks for a lease whose request or release had no answer, until Redis has answered twice
// and the lease is gone.
func (q *plainRead) search(token string) {
	if q.plant == leftLease {
		return
	}
	q.tasks.Go(func() {
		for answers := 0; ; {
			text, err := q.client.Get(q.life, q.names()[0]).Result()
			switch {
			case errors.Is(err, redis.Nil), err == nil && !strings.HasPrefix(text, token+":"):
				if answers++; answers == 2 {
					return
				}
			case err == nil:
				answers = max(answers, 1)
				_ = q.client.Eval(q.life, protocol.ReleaseScript, q.names()[:1], text).Err() // what stays is found again
				continue
			}
			if sleep.For(q.life, q.timeout) != nil {
				return
			}
		}
	})
}
