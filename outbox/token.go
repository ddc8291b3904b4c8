package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of a write token.
const (
	// TokenLifetime is the time after the commit during which a Check uses a token. If you store
	// tokens in cookies, a longer lifetime of the cookie has no effect.
	TokenLifetime = 5 * time.Minute
	// MaxTokenRows is the largest number of rows in a token. For the token of a
	// larger write, Settled and Wait return ErrTooManyRows.
	MaxTokenRows = 1000
	// MaxTokenText is the largest length in bytes of a token as text.
	MaxTokenText = 1024
)

// maxTokenRuns is the maximum number of ID runs in a token. It keeps the text below MaxTokenText.
const maxTokenRuns = 40

// ErrOtherOutbox means that the token belongs to another database's outbox.
var ErrOtherOutbox = errors.New("the token belongs to another outbox")

// A Token is a write token (session token). It contains the IDs of the rows that a transaction
// enqueued. Use it to wait until these rows are settled ([Wait], [Settled]), or to let a user read
// their own writes ([Check]).
//
// Store its text in a cookie or a header: see String and ParseToken. It is not signed, because a
// forged token only makes the reads of its user slower. It reveals the IDs of rows.
//
// The zero Token contains no rows and is settled. Tokens can be copied and used concurrently.
type Token struct {
	source string // of the outbox: see cache_outbox_source
	made   int64  // when the rows were committed, by the database's clock: seconds since 1970
	runs   []run  // ascending; read-only
	many   bool   // more rows than a token names; there are no runs then
}

// A run is a series of IDs that one statement received: first, first + step and so on.
type run struct {
	first, count, step uint64
}

func (r run) last() uint64 { return r.first + (r.count-1)*r.step }

// IsZero reports whether the token contains no rows, so there is nothing to wait for.
func (t Token) IsZero() bool { return t.source == "" }

// Join returns a token with the rows of both tokens, for example the token that a browser sent and
// the token of the current request. If one token is older than the other by TokenLifetime, its rows
// are dropped. If the tokens come from different outboxes, the error is ErrOtherOutbox.
func (t Token) Join(other Token) (Token, error) {
	switch {
	case t.IsZero():
		return other, nil
	case other.IsZero():
		return t, nil
	case t.source != other.source:
		return Token{}, ErrOtherOutbox
	}
	older, newer := t, other
	if older.made > newer.made {
		older, newer = newer, older
	}
	if newer.made-older.made > int64(TokenLifetime/time.Second) {
		return newer, nil
	}
	joined := Token{source: newer.source, made: newer.made, many: older.many || newer.many}
	joined.addRuns(slices.Concat(older.runs, newer.runs)...)
	return joined, nil
}

// addRuns adds runs.
func (t *Token) addRuns(runs ...run) {
	if !t.many {
		t.runs = joinRuns(slices.Concat(t.runs, runs))
	}
	rows := uint64(0)
	for _, r := range t.runs {
		rows += r.count
	}
	if t.many || rows > MaxTokenRows || len(t.runs) > maxTokenRuns {
		t.runs, t.many = nil, true
	}
}

// joinRuns sorts runs and joins those that overlap or follow each other. It changes runs.
func joinRuns(runs []run) []run {
	slices.SortFunc(runs, func(a, b run) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.step, b.step)) })
	joined := runs[:0]
	for _, r := range runs {
		if n := len(joined); n == 0 || !joined[n-1].extend(r) {
			joined = append(joined, r)
		}
	}
	return joined
}

// extend extends r by a run that does not begin before it, if both have one step and no gap is
// between them. It reports whether it did.
func (r *run) extend(next run) bool {
	if next.step != r.step || (next.first-r.first)%r.step != 0 || next.first > r.last() && next.first-r.last() > r.step {
		return false
	}
	if last := next.last(); last > r.last() {
		r.count = (last-r.first)/r.step + 1
	}
	return true
}

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
	if t.addRuns(runs...); t.many {
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
