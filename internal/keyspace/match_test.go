package keyspace_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/protocol"
)

// The matcher finds the first of the patterns that a name matches, as asking one after the other
// does.
func TestMatcher(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 2))
	text := func(alphabet string, longest int) string {
		var b strings.Builder
		for range random.IntN(longest + 1) {
			b.WriteByte(alphabet[random.IntN(len(alphabet))])
		}
		return b.String()
	}
	matched := 0
	for round := range 300 {
		patterns := make([]string, 1+random.IntN(60))
		globs := make([]protocol.Glob, len(patterns))
		start := strings.Repeat("p", round%3*40) // beyond what is filed
		for i := range patterns {
			patterns[i] = start + text("ab:*?", 12)
			var err error
			if globs[i], err = protocol.CompileGlob(patterns[i]); err != nil {
				t.Fatal(err)
			}
		}
		match := mustMatch(t, patterns)
		for range 200 {
			name := start + text("ab:", 14)
			want := slices.IndexFunc(globs, func(g protocol.Glob) bool { return g.Match(name) })
			if got := match(name); got != want {
				t.Fatalf("%q matches number %d, want %d of %q", name, got, want, patterns)
			}
			if want >= 0 {
				matched++
			}
		}
	}
	if matched < 1000 {
		t.Errorf("only %d names matched: the test has lost its point", matched)
	}
}

// FuzzMatcher is the same with what the fuzzer makes of it.
func FuzzMatcher(f *testing.F) {
	f.Add("a*b\na*b*b\n*\n?b?*", "ab\naab\nabb\n\\")
	f.Add(strings.Repeat("a*b:1\n", 9)+"a*b:12*:3?\na\\*b", "acb:1\na*b\nab:12:3x")
	f.Fuzz(func(t *testing.T, patterns, names string) {
		list := strings.Split(patterns, "\n")
		match := keyspace.NewMatcher(list, func(int, error) {}).First
		for name := range strings.SplitSeq(names, "\n") {
			want := -1
			for i, p := range list {
				if g, err := protocol.CompileGlob(p); err == nil && g.Match(name) {
					want = i
					break
				}
			}
			if got := match(name); got != want {
				t.Fatalf("%q matches number %d, want %d of %q", name, got, want, list)
			}
		}
	})
}

// BenchmarkMatcher reads one name of a shop's keyspace, most of which match nothing. What it costs
// hardly depends on the number of patterns.
func BenchmarkMatcher(b *testing.B) {
	for _, kind := range []string{"zahraah:prod:category:%d:list:*", "zahraah:*:category:%d:list:*", "zahraah:prod:*:%d"} {
		for _, n := range []int{10, 1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", fmt.Sprintf(strings.ReplaceAll(kind, "%d", "%s"), "ID"), n), func(b *testing.B) {
				match := mustMatch(b, globNames(n, kind))
				keys := append(globNames(990, "zahraah:prod:product:9%d:details"), globNames(10, "zahraah:prod:category:%d:list:newest:1")...)
				i := 0
				for b.Loop() {
					match(keys[i%len(keys)])
					i++
				}
			})
		}
	}
}

func mustMatch(t testing.TB, patterns []string) func(name string) int {
	t.Helper()
	return keyspace.NewMatcher(patterns, func(i int, err error) { t.Fatalf("pattern %q: %v", patterns[i], err) }).First
}

// globNames are n names after a format with one number.
func globNames(n int, format string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return list
}
