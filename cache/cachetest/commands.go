package cachetest

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/protocol"
)

// hook answers what a Cache sends in the place of a connection.
type hook struct{ store *Store }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := ctx.Err(); err != nil {
			cmd.SetErr(err)
			return err
		}
		cmd.SetErr(h.store.answer(cmd))
		return cmd.Err()
	}
}

// ProcessPipelineHook answers the commands one by one. Commands of other clients may run between
// them, as in Redis.
func (h hook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	one := h.ProcessHook(nil)
	return func(ctx context.Context, cmds []redis.Cmder) (first error) {
		for _, cmd := range cmds {
			if err := one(ctx, cmd); err != nil && first == nil {
				first = err
			}
		}
		return first
	}
}

// answer does what a command asks for. These are all that package cache sends: another one fails
// the test.
func (s *Store) answer(cmd redis.Cmder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	args := texts(cmd.Args())
	switch cmd := cmd.(type) {
	case *redis.StringCmd:
		text, ok := s.get(args[1])
		if !ok {
			return redis.Nil
		}
		cmd.SetVal(text)
		if cmd.Name() == "getex" {
			s.set(args[1], text, life(args[2], args[3]))
		}
		return nil
	case *redis.TimeCmd:
		cmd.SetVal(s.now())
		return nil
	case *redis.IntCmd:
		if cmd.Name() == "unlink" {
			cmd.SetVal(s.unlink(args[1:]...))
			return nil
		}
	case *redis.Cmd:
		if cmd.Name() == "evalsha" {
			return s.evaluate(cmd, args)
		}
	}
	return s.unknown(cmd)
}

// unknown fails the test rather than have a Cache take it for an outage.
func (s *Store) unknown(cmd redis.Cmder) error {
	err := fmt.Errorf("cachetest: nothing here understands %.200q", fmt.Sprint(cmd.Args()...))
	s.t.Error(err)
	return err
}

// texts returns a command's arguments as they would be sent.
func texts(args []any) []string {
	all := make([]string, len(args))
	for i, arg := range args {
		if b, ok := arg.([]byte); ok {
			all[i] = string(b)
		} else {
			all[i] = fmt.Sprint(arg)
		}
	}
	return all
}

// life returns the time of a command in seconds (ex) or milliseconds (px).
func life(unit, number string) time.Duration {
	n, _ := strconv.ParseInt(number, 10, 64)
	if strings.EqualFold(unit, "ex") {
		return time.Duration(n) * time.Second
	}
	return time.Duration(n) * time.Millisecond
}

// The verbs below are called under the Store's lock.

func (s *Store) get(name string) (string, bool) {
	i, ok := s.items[name]
	if ok && !i.end.After(s.now()) {
		delete(s.items, name)
		return "", false
	}
	return i.text, ok
}

func (s *Store) set(name, text string, life time.Duration) {
	s.items[name] = item{text, s.now().Add(life)}
}

// left returns the time to live of a name in milliseconds, rounded up so that a caller does not ask
// too early.
func (s *Store) left(name string) int64 {
	return (s.items[name].end.Sub(s.now()) + time.Millisecond - 1).Milliseconds()
}

func (s *Store) unlink(names ...string) (n int64) {
	for _, name := range names {
		if _, ok := s.get(name); ok {
			n++
		}
		delete(s.items, name)
	}
	return n
}

// scripts are the scripts of the protocol, by the hash of their text.
var scripts = map[string]func(s *Store, keys, args []string) any{
	hash(protocol.LeaseScript):   (*Store).lease,
	hash(protocol.FillScript):    (*Store).fill,
	hash(protocol.ReleaseScript): (*Store).release,
	hash(protocol.StampScript):   (*Store).stamp,
	hash(protocol.ExpireScript):  (*Store).expire,
}

func hash(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// evaluate runs EVALSHA: hash, number of keys, keys, arguments.
func (s *Store) evaluate(cmd *redis.Cmd, args []string) error {
	script, ok := scripts[args[1]]
	n, err := strconv.Atoi(args[2])
	if !ok || err != nil {
		return s.unknown(cmd)
	}
	switch reply := script(s, args[3:3+n], args[3+n:]).(type) {
	case errorReply:
		return reply
	default:
		cmd.SetVal(reply)
		return nil
	}
}

// An errorReply is an error that a script returns.
type errorReply string

func (e errorReply) Error() string { return string(e) }

// RedisError implements redis.Error.
func (errorReply) RedisError() {}

var hexDigest = regexp.MustCompile(`^[0-9a-f]{40}$`)

// malformed returns the reply of a script to a malformed hash in an argument, or nil.
func malformed(args []string, i int, others string) any {
	if len(args) >= i && hexDigest.MatchString(args[i-1]) {
		return nil
	}
	return errorReply(fmt.Sprintf("ERR ARGV[%d] must be the SHA-1 of the bytes of the value in 40 lower-case hex digits%s", i, others))
}

// token returns a lease value or a tag version: see protocol/scripts.
func (s *Store) token(random string) string {
	return fmt.Sprintf("%s:%d", random, s.now().UnixMicro())
}

func (s *Store) lease(keys, args []string) any {
	lease, hold, value := keys[0], keys[1], keys[2]
	if args[2] != "*" && args[2] != "" {
		if refusal := malformed(args, 3, ", * or empty"); refusal != nil {
			return refusal
		}
	}
	if _, held := s.get(hold); held {
		return []any{"held", s.left(hold)}
	}
	if args[2] != "*" {
		if text, ok := s.get(value); ok && hash(text) != args[2] {
			return []any{"value", text}
		}
	}
	if text, ok := s.get(lease); ok {
		if strings.HasPrefix(text, args[0]+":") {
			return []any{"lease", text}
		}
		return []any{"taken", s.left(lease)}
	}
	text := s.token(args[0])
	s.set(lease, text, life("px", args[1]))
	return []any{"lease", text}
}

func (s *Store) fill(keys, args []string) any {
	lease, hold, value := keys[0], keys[1], keys[2]
	if _, held := s.get(hold); held {
		return int64(0)
	}
	if text, ok := s.get(lease); !ok || text != args[0] {
		if stored, ok := s.get(value); ok && stored == args[1] {
			return int64(1)
		}
		return int64(0)
	}
	s.set(value, args[1], life("px", args[2]))
	s.unlink(lease)
	return int64(1)
}

func (s *Store) release(keys, args []string) any {
	if len(keys) > 1 {
		if refusal := malformed(args, 2, ""); refusal != nil {
			return refusal
		}
	}
	if text, ok := s.get(keys[0]); !ok || text != args[0] {
		return int64(0)
	}
	if len(keys) > 1 {
		if text, ok := s.get(keys[1]); ok && hash(text) == args[1] {
			s.unlink(keys[1])
		}
	}
	return s.unlink(keys[0])
}

func (s *Store) stamp(keys, args []string) any {
	if _, held := s.get(keys[1]); held {
		return ""
	}
	least := life("px", args[1])
	text, ok := s.get(keys[0])
	if !ok {
		text = s.token(args[0])
	}
	if !ok || time.Duration(s.left(keys[0]))*time.Millisecond < least {
		s.set(keys[0], text, least)
	}
	return text
}

func (s *Store) expire(keys, args []string) any {
	if refusal := malformed(args, 1, ""); refusal != nil {
		return refusal
	}
	if text, ok := s.get(keys[0]); !ok || hash(text) != args[0] {
		return int64(0)
	}
	s.set(keys[0], args[1], life("px", args[2]))
	return int64(1)
}
