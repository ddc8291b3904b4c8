package outbox

import (
	"cmp"
	"errors"
	"slices"
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

// take extends r by a run that does not begin before it, if both have one step and no gap is
// between them. It reports whether it did.
func (r *run) take(next run) bool {
	if next.step != r.step || (next.first-r.first)%r.step != 0 || next.first > r.last() && next.first-r.last() > r.step {
		return false
	}
	if last := next.last(); last > r.last() {
		r.count = (last-r.first)/r.step + 1
	}
	return true
}
