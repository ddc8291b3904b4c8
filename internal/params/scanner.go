package params

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads JSON token by token, in one pass and without recursion. Unlike encoding/json it
// keeps numbers as they were written and refuses what cannot be decoded exactly.
type scanner struct {
	src string // valid UTF-8
	pos int
}

var (
	errEnd       = errors.New("the JSON ends too early")
	errSurrogate = errors.New("a lone surrogate (\\ud800 to \\udfff) is not a character")
	errControl   = errors.New("a control character in a string must be escaped")
	errEscape    = errors.New("an unknown escape in a string")
)

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// expect consumes the byte c.
func (s *scanner) expect(c byte) error {
	if got := s.peek(); got != c {
		return s.unexpected(string(c))
	}
	s.pos++
	return nil
}

func (s *scanner) unexpected(want string) error {
	if s.peek(); s.pos == len(s.src) {
		return errEnd
	}
	r, _ := utf8.DecodeRuneInString(s.src[s.pos:])
	return fmt.Errorf("not JSON: %q at byte %d, want %s", r, s.pos, want)
}

// word consumes true, false or null.
func (s *scanner) word(word string) error {
	if !strings.HasPrefix(s.src[s.pos:], word) {
		return s.unexpected("a value")
	}
	s.pos += len(word)
	return nil
}

// number consumes a number and returns its source text.
func (s *scanner) number() (string, error) {
	start := s.pos
	s.skip('-')
	if !s.skip('0') && s.digits() == 0 {
		return "", s.unexpected("a digit")
	}
	if s.skip('.') && s.digits() == 0 {
		return "", s.unexpected("a digit")
	}
	if s.skip('e') || s.skip('E') {
		if !s.skip('+') {
			s.skip('-')
		}
		if s.digits() == 0 {
			return "", s.unexpected("a digit")
		}
	}
	return s.src[start:s.pos], nil
}

func (s *scanner) skip(c byte) bool {
	if s.pos < len(s.src) && s.src[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) digits() (n int) {
	for s.pos < len(s.src) && s.src[s.pos] >= '0' && s.src[s.pos] <= '9' {
		s.pos++
		n++
	}
	return n
}

// stringValue consumes a string. Without escapes it is a piece of src and costs no allocation.
func (s *scanner) stringValue() (string, error) {
	if err := s.expect('"'); err != nil {
		return "", err
	}
	start := s.pos
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '"':
			s.pos++
			return s.src[start : s.pos-1], nil
		case c == '\\':
			return s.escapedText(start)
		case c < 0x20:
			return "", errControl
		}
		s.pos++
	}
	return "", errEnd
}

// escapedText consumes the rest of a string that began at start, from its first escape on.
func (s *scanner) escapedText(start int) (string, error) {
	buf := append(make([]byte, 0, 2*(s.pos-start)+16), s.src[start:s.pos]...)
	for s.pos < len(s.src) {
		c := s.src[s.pos]
		s.pos++
		switch {
		case c == '"':
			return string(buf), nil
		case c < 0x20:
			return "", errControl
		case c != '\\':
			buf = append(buf, c)
			continue
		}
		r, err := s.escape()
		if err != nil {
			return "", err
		}
		buf = utf8.AppendRune(buf, r)
	}
	return "", errEnd
}

// escape consumes what follows a backslash.
func (s *scanner) escape() (rune, error) {
	if s.pos == len(s.src) {
		return 0, errEnd
	}
	c := s.src[s.pos]
	s.pos++
	if c == 'u' {
		return s.codePoint()
	}
	const letters, meant = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := strings.IndexByte(letters, c); i >= 0 {
		return rune(meant[i]), nil
	}
	return 0, errEscape
}

// codePoint consumes what follows \u: one code point, perhaps written as a pair of surrogates.
func (s *scanner) codePoint() (rune, error) {
	high, err := s.hex4()
	if err != nil || !utf16.IsSurrogate(high) {
		return high, err
	}
	if !strings.HasPrefix(s.src[s.pos:], `\u`) {
		return 0, errSurrogate
	}
	s.pos += 2
	low, err := s.hex4()
	if err != nil {
		return 0, err
	}
	r := utf16.DecodeRune(high, low)
	if r == utf8.RuneError {
		return 0, errSurrogate
	}
	return r, nil
}

func (s *scanner) hex4() (rune, error) {
	if s.pos+4 > len(s.src) {
		return 0, errEnd
	}
	r, err := strconv.ParseUint(s.src[s.pos:s.pos+4], 16, 16)
	if err != nil {
		return 0, errEscape
	}
	s.pos += 4
	return rune(r), nil
}
