package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// A correctReader reads and fills with the commands that docs/protocol.md requires of a reader, and
// with nothing else: it has no deadline, breaker, policy, codec or statistics. A reader that keeps
// the promises cannot be faster with the same client of Redis. It asks for the sign of life that
// keepAlive writes.
type correctReader struct {
	*redis.Client
	lease, fill, stamp *redis.Script
}

// newCorrectReader also stores the scripts, which are then sent by their hashes.
func newCorrectReader(ctx context.Context, client *redis.Client) (correctReader, error) {
	r := correctReader{client, redis.NewScript(protocol.LeaseScript), redis.NewScript(protocol.FillScript), redis.NewScript(protocol.StampScript)}
	for _, s := range []*redis.Script{r.lease, r.fill, r.stamp} {
		if err := s.Load(ctx, client).Err(); err != nil {
			return r, err
		}
	}
	return r, nil
}

const correctLife = 10 * time.Second // of a lease, as keepAlive permits

var errNotAlive = errors.New("the worker's sign of life is missing or old")

// ask adds the question whether workers write to the server that answers. The caller calls answered
// with the replies.
func (correctReader) ask(ctx context.Context, p redis.Pipeliner) (answered func() error) {
	now, sign := p.Time(ctx), p.HGet(ctx, protocol.AliveKey(""), aliveSource)
	return func() error {
		alive, err := protocol.ParseAlive(sign.Val())
		switch {
		case err != nil:
			return err
		case now.Val().UnixMicro()-alive.Time > protocol.AliveLife, alive.Lease < correctLife.Milliseconds():
			return errNotAlive
		}
		return nil
	}
}

// read does what a hit needs in one round trip: the value, the version of its tag, the beat and the
// clock. An empty tag means none. It returns redis.Nil for a miss.
func (r correctReader) read(ctx context.Context, key, tag string) (v product, err error) {
	var text, stamp *redis.StringCmd
	var answered func() error
	if _, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		answered = r.ask(ctx, p)
		text = p.Get(ctx, key)
		if tag != "" {
			stamp = p.Get(ctx, protocol.StampKey(tag))
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return v, err
	}
	if err := answered(); err != nil {
		return v, err
	}
	entry, err := text.Bytes()
	if err != nil {
		return v, err
	}
	head, value, ok := bytes.Cut(entry, []byte(`,"v":`))
	if !ok {
		return v, fmt.Errorf("%s has no value: %s", key, entry)
	}
	digits, _, _ := bytes.Cut(bytes.TrimPrefix(head, []byte(`{"e":`)), []byte(","))
	expiry, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return v, err
	}
	if expiry <= time.Now().UnixMilli() || stamp != nil && (stamp.Val() == "" || !bytes.Contains(head, []byte(stamp.Val()))) {
		return v, redis.Nil
	}
	return v, json.Unmarshal(value[:len(value)-1], &v)
}

// miss does what a read of a key that is not stored needs, if the reader expects that: the lease
// with the version of the tag, which would return a stored value, and the fill.
func (r correctReader) miss(ctx context.Context, key, tag string) error {
	var lease, stamp *redis.Cmd
	var answered func() error
	if _, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		lease = r.take(ctx, p, key)
		if tag != "" {
			name := protocol.StampKey(tag)
			hold, _ := protocol.HoldKey(name)
			stamp = r.stamp.EvalSha(ctx, p, []string{name, hold}, rand.Text(), (2 * time.Hour).Milliseconds())
		}
		answered = r.ask(ctx, p)
		return nil
	}); err != nil {
		return err
	}
	if err := answered(); err != nil {
		return err
	}
	tags := ""
	if stamp != nil {
		tags = `,"t":{` + strconv.Quote(tag) + `:` + strconv.Quote(stamp.Val().(string)) + `}`
	}
	fill, err := r.store(ctx, r.Client, key, lease, tags)
	if err != nil {
		return err
	}
	return stored(key, fill)
}

// take requests the lease of a key.
func (r correctReader) take(ctx context.Context, p redis.Scripter, key string) *redis.Cmd {
	return r.lease.EvalSha(ctx, p, correctNames(key), rand.Text(), correctLife.Milliseconds(), "")
}

// store loads the value of a key and fills it under the lease.
func (r correctReader) store(ctx context.Context, p redis.Scripter, key string, lease *redis.Cmd, tags string) (*redis.Cmd, error) {
	reply, err := lease.StringSlice()
	if err != nil || len(reply) != 2 || reply[0] != "lease" {
		return nil, fmt.Errorf("lease of %s: %q, %w", key, reply, err)
	}
	value, err := loadProduct(ctx)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	_, leased, _ := strings.Cut(reply[1], ":")
	micros, err := strconv.ParseInt(leased, 10, 64)
	if err != nil {
		return nil, err
	}
	entry := fmt.Appendf(nil, `{"e":%d,"b":%s%s,"v":%s}`, micros/1000+time.Hour.Milliseconds(), leased, tags, text)
	return r.fill.EvalSha(ctx, p, correctNames(key), reply[1], entry, time.Hour.Milliseconds()), nil
}

// stored returns an error if a fill was refused.
func stored(key string, fill *redis.Cmd) error {
	if done, err := fill.Int(); done != 1 || err != nil {
		return fmt.Errorf("%s is not stored: %d, %w", key, done, err)
	}
	return nil
}

// correctNames returns the keys of the scripts of leases and fills.
func correctNames(key string) []string {
	lease, _ := protocol.LeaseKey(key)
	hold, _ := protocol.HoldKey(key)
	return []string{lease, hold, key}
}

// warm looks keys up and stores all that are missing, as floorWarm does, by leases and fills.
func (r correctReader) warm(ctx context.Context, keys []string) error {
	for some := range slices.Chunk(keys, 500) {
		if err := r.warmSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (r correctReader) warmSome(ctx context.Context, keys []string) error {
	gets, leases, fills := make([]*redis.StringCmd, len(keys)), make([]*redis.Cmd, len(keys)), make([]*redis.Cmd, len(keys))
	var before, after func() error
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		before = r.ask(ctx, p)
		for i, key := range keys {
			gets[i] = p.Get(ctx, key)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for i, get := range gets {
		if !errors.Is(get.Err(), redis.Nil) {
			return fmt.Errorf("get %s, which is not stored: %w", keys[i], get.Err())
		}
	}
	_, err = r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			leases[i] = r.take(ctx, p, key)
		}
		after = r.ask(ctx, p)
		return nil
	})
	if err = errors.Join(err, before(), after()); err != nil {
		return err
	}
	_, err = r.Pipelined(ctx, func(p redis.Pipeliner) (err error) {
		for i, key := range keys {
			if fills[i], err = r.store(ctx, p, key, leases[i], ""); err != nil {
				return err
			}
		}
		return nil
	})
	for i, fill := range fills {
		if err == nil {
			err = stored(keys[i], fill)
		}
	}
	return err
}
