package keyspace_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/protocol"
)

// A judge asks a real Redis whether keys match patterns.
type judge struct {
	t     testing.TB
	redis *redis.Client
}

// agree checks that a pattern that is a glob matches key exactly if it does so in Redis.
func (j judge) agree(t *testing.T, pattern, key string) (matched bool) {
	t.Helper()
	g, err := protocol.CompileGlob(pattern)
	if err != nil {
		return false
	}
	var found *redis.StringSliceCmd
	_, err = j.redis.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.FlushDB(t.Context())
		p.Set(t.Context(), key, "x", 0)
		found = p.Keys(t.Context(), pattern)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Contains(found.Val(), key)
	if got := g.Match(key); got != want {
		t.Fatalf("%q matches %q: %v, Redis says %v", pattern, key, got, want)
	}
	return want
}

// Patterns mean what they mean to Redis, byte by byte.
func TestGlobsAgreeWithRedis(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	j := judge{t, r.Client}
	random := rand.New(rand.NewPCG(7, 8))
	text := func(alphabet string, longest int) string {
		b := make([]byte, random.IntN(longest+1))
		for i := range b {
			b[i] = alphabet[random.IntN(len(alphabet))]
		}
		return string(b)
	}
	matched := 0
	for range 3000 {
		if j.agree(t, text("ab*?\\-^]\xff\x00", 8), text("ab*?\\-^]\xff\x00", 8)) {
			matched++
		}
		value := text("ab*?[]\\^-\xff\n", 8) // a value in a pattern matches itself
		if !j.agree(t, protocol.Escape(value), value) {
			t.Fatalf("%q does not match %q", protocol.Escape(value), value)
		}
	}
	if matched < 100 {
		t.Errorf("only %d pairs matched: the test has lost its point", matched)
	}
}

// FuzzGlobAgainstRedis makes the same check with fuzzed patterns and keys.
func FuzzGlobAgainstRedis(f *testing.F) {
	r := testenv.OwnRedis(f)
	j := judge{f, testenv.Client(f, r.URL())}
	for _, s := range [][2]string{{"a*b", "acb"}, {`\*`, "*"}, {"?*?", "ab"}, {"**a**", "ba"}, {`a\`, `a\`}, {"*a?b*c", "aab-xxc"}, {"", ""}, {"?", "é"}, {"a]^-", "a]^-"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, key string) {
		if len(pattern) > 200 || len(key) > 200 {
			return // Redis gives up on what backtracks for too long
		}
		j.agree(t, pattern, key)
	})
}
