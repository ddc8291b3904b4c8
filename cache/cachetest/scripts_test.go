package cachetest_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/cache/cachetest"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A side is Redis or the Store, as the commands of a Cache see it.
type side struct {
	client redis.UniversalClient
	hold   func(name string)
	ttl    func(name string) time.Duration
	leases map[string]string // texts that were given out, by token
}

// times are the times in leases and tag versions, which differ.
var times = regexp.MustCompile(`:\d{16}`)

// plain returns an answer without its times.
func plain(v any, err error) string {
	switch {
	case errors.Is(err, redis.Nil):
		return "none"
	case err != nil:
		return "error " + err.Error()
	}
	if list, ok := v.([]any); ok && len(list) == 2 {
		if n, ok := list[1].(int64); ok {
			return fmt.Sprint(list[0], n > 0)
		}
	}
	return times.ReplaceAllString(fmt.Sprint(v), ":TIME")
}

func sum(text string) string {
	s := sha1.Sum([]byte(text))
	return hex.EncodeToString(s[:])
}

// A step is one command, with the same arguments on both sides except for the times of leases.
type step func(ctx context.Context, s *side) string

func evaluate(ctx context.Context, s *side, script string, keys []string, args ...any) string {
	return plain(redis.NewScript(script).Run(ctx, s.client, keys, args...).Result())
}

// anyStep makes a step about a few names, values and tokens, which meet often.
func anyStep(r *rand.Rand, prefix string) (what string, do step) {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	key, token, value := prefix+pick("a", "b"), pick("t1", "t2"), pick("v1", "v2")
	lease, _ := protocol.LeaseKey(key)
	hold, _ := protocol.HoldKey(key)
	stamp := protocol.StampKey(key)
	stampHold, _ := protocol.HoldKey(stamp)
	hours := time.Duration(1+r.IntN(3)) * time.Hour
	px := hours.Milliseconds()
	switch n := r.IntN(21); {
	case n < 5:
		useless := pick("", "*", sum("v1"), sum("v2"), strings.ToUpper(sum("v1")))
		return fmt.Sprint("lease ", key, token, useless), func(ctx context.Context, s *side) string {
			got, err := redis.NewScript(protocol.LeaseScript).Run(ctx, s.client, []string{lease, hold, key}, token, px, useless).Slice()
			if err == nil && got[0] == "lease" {
				s.leases[token] = got[1].(string)
			}
			return plain(got, err)
		}
	case n < 9:
		return fmt.Sprint("fill ", key, token, value), func(ctx context.Context, s *side) string {
			return evaluate(ctx, s, protocol.FillScript, []string{lease, hold, key}, s.leases[token], []byte(value), px)
		}
	case n < 10:
		return fmt.Sprint("release ", key, token), func(ctx context.Context, s *side) string {
			return evaluate(ctx, s, protocol.ReleaseScript, []string{lease}, s.leases[token])
		}
	case n < 11:
		superseded := pick(sum("v1"), sum("v2"), "*")
		return fmt.Sprint("release ", key, token, superseded), func(ctx context.Context, s *side) string {
			return evaluate(ctx, s, protocol.ReleaseScript, []string{lease, key}, s.leases[token], superseded)
		}
	case n < 13:
		return fmt.Sprint("stamp ", key, token, px), func(ctx context.Context, s *side) string {
			return evaluate(ctx, s, protocol.StampScript, []string{stamp, stampHold}, token, px)
		}
	case n < 14:
		was, other := pick(sum(value), sum(value), "*"), pick("v1", "v2")
		return fmt.Sprint("expire ", key, was, other), func(ctx context.Context, s *side) string {
			return evaluate(ctx, s, protocol.ExpireScript, []string{key}, was, other, px)
		}
	case n < 16:
		return fmt.Sprint("get ", key), func(ctx context.Context, s *side) string { return plain(s.client.Get(ctx, key).Result()) }
	case n < 17:
		return fmt.Sprint("getex ", key, hours), func(ctx context.Context, s *side) string {
			return plain(s.client.GetEx(ctx, key, hours).Result())
		}
	case n < 18:
		name := pick(hold, stampHold)
		return fmt.Sprint("hold ", name), func(_ context.Context, s *side) string { s.hold(name); return "" }
	default:
		names := [][]string{{lease, key}, {key}, {stamp}, {hold}, {stampHold}}[r.IntN(5)]
		return fmt.Sprint("unlink ", names), func(ctx context.Context, s *side) string {
			return plain(s.client.Unlink(ctx, names...).Result())
		}
	}
}

// The Store answers every command of a Cache as Redis does with the real scripts, and ends in the
// same state.
func TestStoreAnswersAsRedis(t *testing.T) {
	t.Parallel()
	ctx, server, store := t.Context(), testenv.Redis(t), cachetest.NewStore(t)
	sides := []*side{{
		client: server.Client,
		hold:   func(name string) { server.Client.Set(ctx, name, "1", time.Hour) },
		ttl:    func(name string) time.Duration { return server.Client.PTTL(ctx, name).Val() },
	}, {client: store.Client(), hold: func(name string) { store.Hold(name, time.Hour) }, ttl: store.TTL}}
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	kinds := map[string]int{}
	for round := range 150 {
		prefix, log := fmt.Sprint("r", round, ":"), ""
		for _, s := range sides {
			s.leases = map[string]string{}
		}
		for range 40 {
			what, do := anyStep(r, prefix)
			want, got := do(ctx, sides[0]), do(ctx, sides[1])
			log += fmt.Sprintf("%s: %s\n", what, want)
			kinds[want]++
			if got != want {
				t.Fatalf("round %d: the Store answers %s after\n%s", round, got, log)
			}
		}
		for _, key := range []string{prefix + "a", prefix + "b"} {
			lease, _ := protocol.LeaseKey(key)
			for _, name := range []string{key, lease, protocol.StampKey(key)} {
				want, got := sides[0].ttl(name).Round(10*time.Minute), sides[1].ttl(name).Round(10*time.Minute)
				if got != want {
					t.Fatalf("round %d: the Store keeps %s for %v, Redis for %v, after\n%s", round, name, got, want, log)
				}
			}
		}
	}
	if len(kinds) < 12 {
		t.Errorf("only these answers came: %v", kinds)
	}
}
