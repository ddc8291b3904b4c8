package protocol

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestGlob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false},
		{"*", "", true}, {"*", "anything\nat all", true}, {"**", "", false} /* as Redis sees it */, {"?", "", false}, {"?", "a", true}, {"?", "ab", false},
		{"a*", "a", true}, {"a*", "ab", true}, {"a*", "ba", false},
		{"*a", "a", true}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*b", "ab", true}, {"a*b", "acb", true}, {"a*b", "aab", true}, {"a*b", "a", false}, {"a*a", "a", false}, {"a*a", "aa", true},
		{"a*b*c", "abc", true}, {"a*b*c", "axbxbxc", true}, {"a*b*c", "acb", false},
		{"*aab*", "aaaab", true}, {"*a?b*c", "aab-xxc", true}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"?*?", "a", false}, {"?*?", "ab", true}, {"*?*", "", false}, {"*?*?*", "ab", true},
		{`a\*`, "a*", true}, {`a\*`, "ab", false}, {`a\?`, "a?", true}, {`\[a]`, "[a]", true}, {`\[a]`, "a", false}, {`\\`, `\`, true}, {`\a`, "a", true},
		{"list:*", "list:[1]{2}", true}, {"خ*", "خصم", true}, {"?", "خ", false}, {"??", "خ", true},
		{"zahraah:prod:category:7:list:*", "zahraah:prod:category:77:list:p1", false},
	} {
		g, err := CompileGlob(c.pattern)
		if err != nil {
			t.Errorf("CompileGlob(%q): %v", c.pattern, err)
			continue
		}
		if got := g.Match(c.key); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.key, got, c.want)
		}
	}
}

func TestCompileGlobRefuses(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]error{
		"[a]": ErrGlobClass, "a*[": ErrGlobClass, `a\`: ErrGlobEscape, `\`: ErrGlobEscape, `a\\\`: ErrGlobEscape,
	} {
		if _, err := CompileGlob(pattern); !errors.Is(err, want) {
			t.Errorf("CompileGlob(%q) = %v, want %v", pattern, err, want)
		}
	}
}

func TestGlobPrefix(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"": "", "*": "", "a": "a", "abc*": "abc", "ab?c*": "ab", `a\*b*`: "a*b", `\\*`: `\`, "?a": "",
	} {
		g, err := CompileGlob(pattern)
		if err != nil || g.Prefix() != want {
			t.Errorf("prefix of %q is %q, %v, want %q", pattern, g.Prefix(), err, want)
		}
	}
	if (Glob{}).Prefix() != "" || !(Glob{}).Match("") || (Glob{}).Match("a") {
		t.Error("the zero Glob matches more than the empty key")
	}
}

// A pattern that makes naive matchers exponential costs no more than its length times the key's.
func TestGlobHostile(t *testing.T) {
	t.Parallel()
	g, err := CompileGlob(strings.Repeat("a*?", 1000) + "b")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if g.Match(strings.Repeat("a", 100_000)) {
		t.Error("a key without b matches")
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// naiveMatch follows the description of MATCH in Redis literally.
func naiveMatch(pattern, key string) bool {
	if pattern == "" {
		return key == ""
	}
	switch {
	case pattern[0] == '*':
		for i := 0; i <= len(key); i++ {
			if naiveMatch(pattern[1:], key[i:]) {
				return true
			}
		}
		return false
	case key == "":
		return false
	case pattern[0] == '?':
	case pattern[0] == '\\' && len(pattern) > 1:
		pattern = pattern[1:]
		fallthrough
	default:
		if pattern[0] != key[0] {
			return false
		}
	}
	return naiveMatch(pattern[1:], key[1:])
}

func TestGlobInfix(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"": "", "*": "", "abc": "", "abc*": "", "a*bc*d": "bc", "a*b*cd": "cd", "a?b": "b", "?ab": "ab", "a?bc?d*e": "bc",
		"a??b": "b", `a*\*b?c`: "*b", "a*bc?": "bc", "*ab*cd*": "ab",
	} {
		g, err := CompileGlob(pattern)
		if err != nil || g.Infix() != want {
			t.Errorf("infix of %q is %q, %v, want %q", pattern, g.Infix(), err, want)
		}
	}
}

// Includes agrees with Match on all short globs and keys, except that it may miss what a ? includes
// of a star.
func TestGlobIncludes(t *testing.T) {
	t.Parallel()
	words := func(alphabet string, longest int) (all []string) {
		for from := 0; longest > 0; longest-- {
			begin := all[from:]
			if from == 0 && len(all) == 0 {
				begin = []string{""}
			}
			from = len(all)
			for _, w := range begin {
				for _, c := range alphabet {
					all = append(all, w+string(c))
				}
			}
		}
		return all
	}
	keys := words("abc", 5) // c is in no glob, so only a wildcard matches it
	var globs []Glob
	var matched [][]bool
	patterns := words("ab?*", 3)
	for _, p := range patterns {
		g, err := CompileGlob(p)
		if err != nil {
			t.Fatal(err)
		}
		m := make([]bool, len(keys))
		for i, key := range keys {
			m[i] = g.Match(key)
		}
		globs, matched = append(globs, g), append(matched, m)
	}
	for i, wider := range globs {
		for j, other := range globs {
			want := true
			for k := range keys {
				want = want && (matched[i][k] || !matched[j][k])
			}
			sure := !strings.Contains(patterns[i], "?") || !strings.Contains(patterns[j], "*")
			if got := wider.Includes(other); got != want && (got || sure) {
				t.Errorf("%q includes %q: %t, wanted %t", patterns[i], patterns[j], got, want)
			}
		}
	}
	if g, _ := CompileGlob(`a\**`); !g.Includes(must(t, `a\*?`)) || g.Includes(must(t, "a*")) {
		t.Error("an escaped star is taken for a wildcard")
	}
}

func must(t *testing.T, pattern string) Glob {
	t.Helper()
	g, err := CompileGlob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func FuzzGlob(f *testing.F) {
	for _, s := range [][2]string{{"a*b", "acb"}, {`\*`, "*"}, {"?*?", "ab"}, {"**a**", "ba"}, {`\[x]*`, "[x]y"}, {"*a?b*c", "aab-xxc"}, {"", ""}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, key string) {
		escaped, err := CompileGlob(Escape(key))
		if err != nil || !escaped.Match(key) || escaped.Prefix() != key {
			t.Fatalf("Escape(%q) = %q: %v", key, Escape(key), err)
		}
		if pattern != key && escaped.Match(pattern) {
			t.Fatalf("Escape(%q) matches %q", key, pattern)
		}
		g, err := CompileGlob(pattern)
		if err != nil || len(pattern) > 24 || len(key) > 24 || strings.Count(pattern, "*") > 6 {
			return // the naive matcher would take too long
		}
		// To Redis only the empty pattern and a single star match the empty key.
		if got, want := g.Match(key), naiveMatch(pattern, key) && (key != "" || len(pattern) <= 1); got != want {
			t.Fatalf("%q matches %q: %v, want %v", pattern, key, got, want)
		}
		if g.Match(key) && !strings.HasPrefix(key, g.Prefix()) {
			t.Fatalf("%q matches %q without its prefix %q", pattern, key, g.Prefix())
		}
		if g.Match(key) && !strings.Contains(key[len(g.Prefix()):], g.Infix()) {
			t.Fatalf("%q matches %q without its infix %q", pattern, key, g.Infix())
		}
	})
}
