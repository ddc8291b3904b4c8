package outbox

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// Limits of a token.
const (
	// TokenLifetime is how long after its commit a token counts for readers. It is also a good age for a cookie: a
	// shorter one ends the guarantee sooner, a longer one does not prolong it.
	TokenLifetime = 5 * time.Minute
	// MaxTokenRows is how many rows a token names. One of more rows is never settled: see ErrTooManyRows.
	MaxTokenRows = 1000
	// MaxTokenText is the length in bytes that the text of a token never exceeds.
	MaxTokenText = 1024
)

// maxTokenRuns is how many runs of ids a token names, so that its text stays below MaxTokenText.
const maxTokenRuns = 40

// ErrOtherOutbox is a token of another database's outbox, which says nothing about this one.
var ErrOtherOutbox = errors.New("the token is of another outbox")

// A Token names the rows of a write that was committed, so that whoever shows it reads that write or a later one: Wait and
// Settled tell when the keys of the rows are gone from Redis, and a Check tells it to readers. Its text goes into a cookie
// or a header: see String and ParseToken. It is not signed: a forged one makes readers go to the database more often than
// they must, and nothing else. It shows ids of rows to whoever has it.
//
// The zero Token names no rows, and is settled. Tokens are values: safe to copy and for concurrent use.
type Token struct {
	source string // of the outbox: see cache_outbox_source
	made   int64  // when the rows were committed, by the database's clock: seconds since 1970
	runs   []run  // ascending; nobody writes to them
	many   bool   // more rows than a token names; there are no runs then
}

// A run is ids that one statement was given: first, first + step and so on.
type run struct {
	first, count, step uint64
}

func (r run) last() uint64 { return r.first + (r.count-1)*r.step }

// IsZero reports whether the token names no rows, so that there is nothing to wait for.
func (t Token) IsZero() bool { return t.source == "" }

// Join returns one token of two writes, such as one that a browser has sent and that of the request in hand. What is older
// than TokenLifetime, beside the newer of the two, is left out. Tokens of two outboxes cannot be joined: the error is
// ErrOtherOutbox.
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
	joined.add(slices.Concat(older.runs, newer.runs)...)
	return joined, nil
}

// add adds runs.
func (t *Token) add(runs ...run) {
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
		if n := len(joined); n == 0 || !joined[n-1].take(r) {
			joined = append(joined, r)
		}
	}
	return joined
}

// take extends r by a run that does not begin before it, if both have one step and no gap is between them. It reports
// whether it did.
func (r *run) take(next run) bool {
	if next.step != r.step || (next.first-r.first)%r.step != 0 || next.first > r.last() && next.first-r.last() > r.step {
		return false
	}
	if last := next.last(); last > r.last() {
		r.count = (last-r.first)/r.step + 1
	}
	return true
}
