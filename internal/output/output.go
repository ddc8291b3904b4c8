// Package output prints JSON for --json, and formats data, numbers and durations for people.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// JSON writes v as one indented object; keys and patterns stay readable.
func JSON(w io.Writer, v any) error { return encode(w, v, "  ") }

// JSONLine writes v as one line.
func JSONLine(w io.Writer, v any) error { return encode(w, v, "") }

func encode(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// longestData is how many bytes of one text Data shows.
const longestData = 4096

// Data returns data as a person can read it: with quotes and escapes if it has characters that do
// not show, such as control characters or those that change the direction of writing.
func Data(s string) string {
	cut := ""
	if len(s) > longestData {
		cut = fmt.Sprintf(" … and %s more bytes", Count(len(s)-longestData))
		s = s[:longestData]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
	}
	for _, r := range s {
		if !strconv.IsPrint(r) || r == utf8.RuneError {
			return strconv.Quote(s) + cut
		}
	}
	return s + cut
}

// bareWord matches a text that a shell reads unchanged without quotes.
var bareWord = regexp.MustCompile(`^[0-9A-Za-z_%+,./:@-]+$`)

// Shell returns data as a word that bash reads unchanged.
func Shell(s string) string {
	switch {
	case bareWord.MatchString(s):
		return s
	case Data(s) == s:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\x%02x`, s[i])
	}
	return "$'" + b.String() + "'"
}

// Count formats a number: 12,345.
func Count(n any) string {
	digits := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Things formats a number of things: 1 key, 2 keys. The plural is the singular with an s, unless
// given.
func Things[N int | int64 | uint64](n N, singular string, plural ...string) string {
	switch {
	case n == 1:
		return "1 " + singular
	case len(plural) > 0:
		return fmt.Sprint(n, " ", plural[0])
	}
	return fmt.Sprint(n, " ", singular, "s")
}

// Span formats a duration in one unit: 350 µs, 12 ms, 47 s, 3 min, 5 h, 2 d.
func Span(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprint(d.Microseconds(), " µs")
	}
	return Short(d)
}

// Short formats a duration in one unit, for people: 12 ms, 47 s, 3 min, 5 h, 2 d.
func Short(d time.Duration) string {
	for _, u := range []struct {
		unit, most time.Duration
		name       string
	}{
		{time.Millisecond, time.Second, "ms"}, {time.Second, 2 * time.Minute, "s"},
		{time.Minute, 2 * time.Hour, "min"}, {time.Hour, 48 * time.Hour, "h"},
	} {
		if d < u.most {
			return fmt.Sprint(int64(d/u.unit), " ", u.name)
		}
	}
	return fmt.Sprint(int64(d/(24*time.Hour)), " d")
}

// A Writer passes on what a command prints, and remembers the first write that failed, so that
// nobody has to look at each line. Not safe for concurrent use.
type Writer struct {
	To  io.Writer
	Err error // nil unless a write failed
}

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	n, err := w.To.Write(b)
	if err != nil && w.Err == nil {
		w.Err = err
	}
	return n, err
}
