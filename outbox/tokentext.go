package outbox

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The format of a token, with characters that need no quoting in URLs and cookies:
//
//	1.SOURCE.MADE.RUNS
//
// 1 is the version of the format. SOURCE is the 32 hex digits of the outbox. MADE is the seconds
// since 1970. RUNS are runs of IDs with _ between them: FIRST for one ID, FIRST-COUNT for
// consecutive ones, FIRST-COUNT-STEP for others; or ~ for more rows than a token names. All numbers
// except the version are in base 36, in lower case.
const (
	tokenVersion = "1"
	sourceLength = 32
	manyRows     = "~"
)

// String returns the token as text for a cookie or a header: letters, digits and - . _ ~, at most
// MaxTokenText bytes, and usually fewer than 70. The text of a zero token is empty.
func (t Token) String() string {
	if t.IsZero() {
		return ""
	}
	var b strings.Builder
	b.WriteString(tokenVersion + "." + t.source + "." + strconv.FormatInt(t.made, 36) + ".")
	if t.many {
		b.WriteString(manyRows)
	}
	for i, r := range t.runs {
		if i > 0 {
			b.WriteByte('_')
		}
		b.WriteString(base36(r.first))
		if r.count > 1 {
			b.WriteString("-" + base36(r.count))
		}
		if r.count > 1 && r.step > 1 {
			b.WriteString("-" + base36(r.step))
		}
	}
	return b.String()
}

func base36(n uint64) string { return strconv.FormatUint(n, 36) }

// ParseToken parses the text of a token, which may come from an untrusted source. An empty text is
// the zero Token. If ParseToken returns an error, ignore the text.
func ParseToken(text string) (Token, error) {
	if text == "" {
		return Token{}, nil
	}
	t, err := parseToken(text)
	if err != nil {
		return Token{}, fmt.Errorf("parse token: %w", err)
	}
	return t, nil
}

func parseToken(text string) (t Token, err error) {
	if len(text) > MaxTokenText {
		return t, fmt.Errorf("%d bytes are more than %d", len(text), MaxTokenText)
	}
	parts := strings.Split(text, ".")
	if parts[0] != tokenVersion {
		return t, fmt.Errorf("the version is %q, wanted %q", clip(parts[0]), tokenVersion)
	}
	if len(parts) != 4 {
		return t, fmt.Errorf("%d parts with dots between them, wanted 4", len(parts))
	}
	if t.source = parts[1]; len(t.source) != sourceLength || strings.Trim(t.source, "0123456789abcdef") != "" {
		return t, fmt.Errorf("the source is %q, wanted %d hex digits", clip(t.source), sourceLength)
	}
	made, err := parseNumber(parts[2])
	if err != nil || made > math.MaxInt32*1000 {
		return t, fmt.Errorf("the time is %q, wanted seconds since 1970 in base 36", clip(parts[2]))
	}
	t.made = int64(made)
	if parts[3] == manyRows {
		t.many = true
		return t, nil
	}
	runs, err := parseRuns(parts[3])
	if err != nil {
		return t, err
	}
	if t.add(runs...); t.many {
		return t, fmt.Errorf("it names more than %d rows, or rows in more than %d runs", MaxTokenRows, maxTokenRuns)
	}
	return t, nil
}

func parseRuns(text string) (runs []run, err error) {
	for part := range strings.SplitSeq(text, "_") {
		if len(runs) == maxTokenRuns {
			return nil, fmt.Errorf("it names rows in more than %d runs", maxTokenRuns)
		}
		r, err := parseRun(part)
		if err != nil {
			return nil, fmt.Errorf("the rows %q: %w", clip(part), err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

func parseRun(text string) (run, error) {
	numbers := [3]uint64{1: 1, 2: 1}
	parts := strings.Split(text, "-")
	if len(parts) > len(numbers) {
		return run{}, errors.New("too many numbers")
	}
	for i, part := range parts {
		n, err := parseNumber(part)
		if err != nil || n == 0 {
			return run{}, fmt.Errorf("%q is not a number from 1 on in base 36", clip(part))
		}
		numbers[i] = n
	}
	r := run{first: numbers[0], count: numbers[1], step: numbers[2]}
	switch {
	case r.count > MaxTokenRows:
		return run{}, fmt.Errorf("%d rows are more than %d", r.count, MaxTokenRows)
	case r.step > math.MaxUint16:
		return run{}, fmt.Errorf("the step %d is more than %d", r.step, math.MaxUint16)
	case r.first > math.MaxInt64:
		return run{}, fmt.Errorf("the id %d is more than %d", r.first, int64(math.MaxInt64))
	}
	return r, nil
}

// parseNumber accepts only the output of base36.
func parseNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 36, 64)
	if err == nil && base36(n) != text {
		err = errors.New("not in its shortest form")
	}
	return n, err
}
