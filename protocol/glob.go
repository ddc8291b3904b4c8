package protocol

import (
	"errors"
	"slices"
	"strings"
)

// A Glob is a compiled pattern like those of MATCH in Redis: * matches any bytes, ? one byte, and a
// backslash quotes the next byte. The zero Glob matches only the empty key. Safe for concurrent
// use.
type Glob struct {
	// runs are the pieces between the stars: one run means no star at all.
	runs []run
	// some reports that the empty key does not match although the pattern has only stars: Redis
	// matches it only with the empty pattern and a single star.
	some bool
}

// A run is a piece of a glob without a star.
type run struct {
	text string
	// any marks the bytes of text that match everything; nil where there is no ? in the run.
	any []bool
}

// Escape returns value as a pattern that matches only value.
func Escape(value string) string {
	if !strings.ContainsAny(value, `*?[\`) {
		return value
	}
	return string(AppendEscaped(make([]byte, 0, len(value)+8), value))
}

// AppendEscaped appends what [Escape] returns.
func AppendEscaped(dst []byte, value string) []byte {
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '*', '?', '[', '\\':
			dst = append(dst, '\\')
		}
		dst = append(dst, value[i])
	}
	return dst
}

// What [CompileGlob] refuses.
var (
	ErrGlobClass  = errors.New("an unescaped [ starts a character class, which is not supported")
	ErrGlobEscape = errors.New("a backslash at the end escapes nothing")
)

// CompileGlob reads a pattern. It refuses an unescaped [ and a lone backslash at the end: what
// remains means the same to Redis and to Glob, byte by byte.
func CompileGlob(pattern string) (Glob, error) {
	var g Glob
	var text []byte
	var wild []bool
	flush := func() {
		r := run{text: string(text)}
		if slices.Contains(wild, true) {
			r.any = slices.Clone(wild)
		}
		g.runs = append(g.runs, r)
		text, wild = text[:0], wild[:0]
	}
	for i := 0; i < len(pattern); i++ {
		c, isAny := pattern[i], false
		switch c {
		case '*':
			flush()
			continue
		case '?':
			isAny = true
		case '[':
			return Glob{}, ErrGlobClass
		case '\\':
			i++
			if i == len(pattern) {
				return Glob{}, ErrGlobEscape
			}
			c = pattern[i]
		}
		text, wild = append(text, c), append(wild, isAny)
	}
	flush()
	g.some = len(pattern) > 1
	return g, nil
}

// Match reports whether the whole key matches. The time is at most proportional to len(key) times
// len(pattern).
func (g Glob) Match(key string) bool {
	if len(g.runs) == 0 {
		return key == ""
	}
	if key == "" && g.some {
		return false
	}
	first, last := g.runs[0], g.runs[len(g.runs)-1]
	if !first.startsIn(key) {
		return false
	}
	key = key[len(first.text):]
	if len(g.runs) == 1 {
		return key == ""
	}
	if len(key) < len(last.text) || !last.startsIn(key[len(key)-len(last.text):]) {
		return false
	}
	key = key[:len(key)-len(last.text)]
	for _, r := range g.runs[1 : len(g.runs)-1] {
		// The leftmost place is always right: it leaves the most for the runs that follow.
		at := r.indexIn(key)
		if at < 0 {
			return false
		}
		key = key[at+len(r.text):]
	}
	return true
}

// A wild is one element of a glob in the form that Includes compares: a byte, any byte, or any bytes.
type wild struct {
	byte      byte
	any, star bool
}

// wilds returns the elements of the glob. Of neighboring wildcards, the star comes last: ?* and *?
// match the same keys.
func (g Glob) wilds() (list []wild) {
	star := false
	literal := func(w wild) {
		if star && !w.any {
			list, star = append(list, wild{star: true}), false
		}
		list = append(list, w)
	}
	for i, r := range g.runs {
		star = star || i > 0
		for at := range len(r.text) {
			if r.any != nil && r.any[at] {
				literal(wild{any: true})
			} else {
				literal(wild{byte: r.text[at]})
			}
		}
	}
	if star {
		list = append(list, wild{star: true})
	}
	return list
}

// Includes reports whether the glob matches every key that the other one matches, except the empty
// key. It is never wrongly true. It can be wrongly false if the glob has a ? where the other one has a
// star beside text: ?* matches all keys of *ab. The time is at most proportional to the product of
// the lengths.
func (g Glob) Includes(other Glob) bool {
	wider, narrower := g.wilds(), other.wilds()
	// included[j] is whether the elements of wider that were looked at include narrower[:j].
	included := make([]bool, len(narrower)+1)
	included[0] = true
	for _, w := range wider {
		before := included[0] // included[j-1] of the elements before w
		included[0] = before && w.star
		for j, n := range narrower {
			here := included[j+1]
			if w.star {
				included[j+1] = here || included[j]
			} else {
				included[j+1] = before && !n.star && (w.any || !n.any && w.byte == n.byte)
			}
			before = here
		}
	}
	return included[len(narrower)]
}

// Prefix returns the literal text before the first * or ?, unescaped.
func (g Glob) Prefix() string {
	if len(g.runs) == 0 {
		return ""
	}
	first := g.runs[0]
	if i := slices.Index(first.any, true); i >= 0 {
		return first.text[:i]
	}
	return first.text
}

// Infix returns the longest literal text after the first * or ?, unescaped: every match contains
// it, after Prefix.
func (g Glob) Infix() string {
	longest := ""
	for i, r := range g.runs {
		literal := 0 // where the stretch begins
		for at := range len(r.text) + 1 {
			if at < len(r.text) && (r.any == nil || !r.any[at]) {
				continue
			}
			if stretch := r.text[literal:at]; len(stretch) > len(longest) && i+literal > 0 {
				longest = stretch
			}
			literal = at + 1
		}
	}
	return longest
}

func (r run) startsIn(key string) bool {
	if r.any == nil {
		return strings.HasPrefix(key, r.text)
	}
	if len(key) < len(r.text) {
		return false
	}
	for i, w := range r.any {
		if !w && key[i] != r.text[i] {
			return false
		}
	}
	return true
}

func (r run) indexIn(key string) int {
	if r.any == nil {
		return strings.Index(key, r.text)
	}
	for i := 0; i+len(r.text) <= len(key); i++ {
		if r.startsIn(key[i:]) {
			return i
		}
	}
	return -1
}
