package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/invalidation"
)

// lookups asks MySQL what the rows of a batch do not say, one query for all rows that use a lookup.
// A lookup is outside the claim: its own connection, its own time limit, the state after the
// commit.
type lookups struct {
	run     lookupFunc
	light   bool // for a batch of light rows
	answers invalidation.Answers
	faults  map[askKey]*lookupFault
	found   int // values of all answers
	bytes   int // of these
	heavy   int // faults
}

// The number of values that lookups find for a batch before its other rows are left in the table,
// and the maximum for one row.
const (
	maxFound      = 50_000
	maxFoundBytes = 4 << 20
	maxOfRow      = 100_000
	maxBytesOfRow = 4 << 20
	maxHeavy      = 32 // answers that a batch of light rows gives up: each costs sessions
)

// foundMany is the error text of a row whose lookups find too much.
const foundMany = "its lookups find more than %d rows or %d bytes; write rows with fewer values, or let the lookups find fewer"

// size returns the bytes of values.
func size(values []string) (n int) {
	for _, v := range values {
		n += len(v)
	}
	return n
}

// isFull reports whether the answers of the batch have as many values as one row may have, or too
// many make their rows heavy.
func (l *lookups) isFull() bool {
	return l.found >= maxFound || l.bytes >= maxFoundBytes || l.heavy >= maxHeavy
}

// A lookupFunc runs the SQL of a lookup: see session.Lookups.
type lookupFunc = func(ctx context.Context, query string, by [][]string, values int) ([][]string, error)

// An askKey is one question: a lookup and its by-values, made comparable.
type askKey struct {
	lookup *invalidation.Lookup
	by     string
}

// A lookupFault is why a question has no answer.
type lookupFault struct {
	err     error
	retry   bool // it may pass: a timeout
	tooMany bool // the answer is larger than a row may have
	heavy   bool // the answer makes its rows heavy, and they need a separate batch
}

// resolve answers the needs of the rows of the batch. Rows whose lookup fails get the fault; the
// error is an outage of MySQL. Dependent lookups run when the earlier ones are answered for all
// rows, so each lookup runs once.
func (b *batch) resolve(ctx context.Context, run lookupFunc, most int, light bool) (*invalidation.Answers, error) {
	l := &lookups{run: run, light: light, faults: map[askKey]*lookupFault{}}
	for rank := 0; rank == 0 || rank < b.m.Ranks(); rank++ {
		q := b.questions(&l.answers, rank, most)
		for lookup, by := range q.asked {
			if err := l.answer(ctx, lookup, by); err != nil {
				return nil, err
			}
		}
		if err := b.dropUnanswered(ctx, q, l); err != nil {
			return nil, err
		}
		if len(l.faults) > 0 {
			b.blameLookups(q, l.faults)
		}
	}
	return &l.answers, nil
}

// dropUnanswered drops the rows from the first one with unasked questions, because the answers of
// the batch have too many values. They stay in the table. The first row is always answered.
func (b *batch) dropUnanswered(ctx context.Context, q *questions, l *lookups) error {
	if !l.isFull() {
		return nil
	}
	rows, bytes := 0, 0 // of the answers to the first row
	for i := range b.changes {
		for _, n := range q.of[i] {
			found, answered := l.answers.Get(n)
			if !answered && l.faults[keyOf(n)] == nil {
				if i > 0 {
					b.changes = b.changes[:i]
					return nil
				}
				l.found, l.bytes, l.heavy = 0, 0, 0
				if err := l.answer(ctx, n.Lookup, [][]string{n.By}); err != nil {
					return err
				}
				found, _ = l.answers.Get(n)
			}
			if i > 0 {
				continue
			}
			rows += len(found) / n.Lookup.Values()
			bytes += size(found)
			if rows > maxOfRow || bytes > maxBytesOfRow {
				b.changes[i].refuse(invalidation.TooManyKeys, fmt.Errorf(foundMany, maxOfRow, maxBytesOfRow))
				break // the row has a fault: no more answers are read
			}
		}
	}
	return nil
}

// questions returns what the batch's rows ask the lookups of a rank, when those below are answered.
// Once they have asked most questions, or questions of invalidation.MaxQuestionBytes, the rows
// behind are dropped from the batch and stay in the table.
func (b *batch) questions(answers *invalidation.Answers, rank, most int) *questions {
	q := &questions{asked: map[*invalidation.Lookup][][]string{}, seen: map[askKey]bool{}, of: make([][]invalidation.Need, len(b.changes))}
	for i := range b.changes {
		c := &b.changes[i]
		if c.fault != nil {
			continue
		}
		list, err := b.m.Needs(c.decoded, answers)
		if err != nil {
			c.blame(err)
			continue
		}
		list = slices.DeleteFunc(list, func(n invalidation.Need) bool { return n.Lookup.Rank > rank })
		if !q.fit(i, list, most) {
			b.changes = b.changes[:i]
			break
		}
	}
	return q
}

// questions are the needs of the rows of a batch for the lookups of a rank, each once.
type questions struct {
	asked map[*invalidation.Lookup][][]string
	seen  map[askKey]bool
	of    [][]invalidation.Need // by row
	count int                   // of all rows, those that they share too
	bytes int                   // that all those ask by
}

// fit reports whether there was room for what row i needs. There is for that of one row.
func (q *questions) fit(i int, list []invalidation.Need, most int) bool {
	bytes := 0
	for _, n := range list {
		bytes += size(n.By)
	}
	if q.count > 0 && len(list) > 0 && (q.count+len(list) > most || q.bytes+bytes > invalidation.MaxQuestionBytes) {
		return false
	}
	q.count += len(list)
	q.bytes += bytes
	q.of[i] = list
	for _, n := range list {
		if key := keyOf(n); !q.seen[key] {
			q.seen[key] = true
			q.asked[n.Lookup] = append(q.asked[n.Lookup], n.By)
		}
	}
	return true
}

// blameLookups sets rows aside whose lookups make them heavy, and marks the other rows whose lookup
// failed.
func (b *batch) blameLookups(q *questions, faults map[askKey]*lookupFault) {
	kept := b.changes[:0]
	for i := range b.changes {
		c := b.changes[i]
		if slices.ContainsFunc(q.of[i], func(n invalidation.Need) bool { f := faults[keyOf(n)]; return f != nil && f.heavy }) {
			b.setAside(c.row)
			continue
		}
		c.blameLookups(q.of[i], faults)
		kept = append(kept, c)
	}
	b.changes = kept
}

func (c *change) blameLookups(needs []invalidation.Need, faults map[askKey]*lookupFault) {
	for _, n := range needs {
		if f := faults[keyOf(n)]; f != nil {
			c.fault = &invalidation.RowError{Reason: invalidation.LookupFailed, Param: n.Lookup.Param, Err: f.err}
			c.retry = f.retry
			if f.tooMany {
				c.fault.Reason = invalidation.TooManyKeys
			}
			return
		}
	}
}

func keyOf(n invalidation.Need) askKey { return askKey{n.Lookup, n.Key()} }

// joinBy makes by-values comparable.
func joinBy(by []string) string { return invalidation.Need{By: by}.Key() }

// answer runs one query for all of by and stores the answers: no row found is an empty list. The
// server compares with its own rules ("042" equals the number 42, "ABC" may equal "abc"), so an
// answer can have an ID that was not asked for. Then the row of the answer is ambiguous, and it
// halves the question until it is not.
func (l *lookups) answer(ctx context.Context, lookup *invalidation.Lookup, by [][]string) error {
	if lookup.Single && len(by) > 1 {
		for i := range by {
			if err := l.answer(ctx, lookup, by[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	if l.isFull() {
		return nil
	}
	found, err := l.run(ctx, lookup.SQL, by, lookup.Values())
	if err != nil {
		return l.fail(ctx, lookup, by, err)
	}
	known := map[[2]string]bool{}
	values := make(map[string][]string, len(by))
	for _, b := range by {
		values[joinBy(b)] = nil
	}
	for _, row := range found {
		id, value := row[:len(lookup.By)], row[len(lookup.By):]
		key := joinBy(id)
		if _, asked := values[key]; !asked {
			return l.foreign(ctx, lookup, by, id)
		}
		if answer := [2]string{key, joinBy(value)}; !known[answer] {
			known[answer] = true
			values[key] = append(values[key], value...)
			l.found += len(value)
			l.bytes += size(value)
		}
	}
	var silent [][]string
	for _, b := range by {
		got := values[joinBy(b)]
		if len(got) == 0 && !canonical(b) {
			silent = append(silent, b)
			continue
		}
		l.answers.Put(invalidation.Need{Lookup: lookup, By: b}, got)
	}
	return l.askSilent(ctx, lookup, by, silent)
}

// askSilent asks again for the ids without an answer that the server may have taken for another id
// of the same query: alone, that shows as an answer that was not asked for.
func (l *lookups) askSilent(ctx context.Context, lookup *invalidation.Lookup, by, silent [][]string) error {
	if len(silent) > 0 && len(silent) < len(by) {
		return l.answer(ctx, lookup, silent)
	}
	for _, b := range silent {
		l.answers.Put(invalidation.Need{Lookup: lookup, By: b}, nil)
	}
	return nil
}

// foreign handles an answer that was not asked for.
func (l *lookups) foreign(ctx context.Context, lookup *invalidation.Lookup, by [][]string, got []string) error {
	if len(by) == 1 {
		err := fmt.Errorf("asked for %q, the answer is for %q; write the id as the database has it", by[0], got)
		l.faults[askKey{lookup, joinBy(by[0])}] = &lookupFault{err: err}
		return nil
	}
	return l.askHalves(ctx, lookup, by)
}

func (l *lookups) askHalves(ctx context.Context, lookup *invalidation.Lookup, by [][]string) error {
	half := len(by) / 2
	if err := l.answer(ctx, lookup, by[:half]); err != nil {
		return err
	}
	return l.answer(ctx, lookup, by[half:])
}

// fail distinguishes a broken lookup (its rows have a fault), one that was too slow (its rows wait)
// and an unavailable server (no row has a fault, and fail returns the error).
func (l *lookups) fail(ctx context.Context, lookup *invalidation.Lookup, by [][]string, err error) error {
	var slow *session.SlowLookupError
	var null *session.LookupNullError
	var many *session.LookupManyError
	f := &lookupFault{err: err}
	switch {
	case len(by) > 1 && (session.IsTooLarge(err) || errors.As(err, &null) || errors.As(err, &many)):
		return l.askHalves(ctx, lookup, by)
	case session.IsTooLarge(err):
		f.err = fmt.Errorf("one question is larger than max_allowed_packet; ask by shorter values: %w", err)
	case errors.As(err, &many) && l.light:
		f.heavy = true
		l.heavy++
	case errors.As(err, &many):
		f.err, f.tooMany = fmt.Errorf(foundMany, many.Rows, many.Bytes), true
	case errors.As(err, &slow):
		f.retry = true
	case !session.IsStatementFault(err):
		return err
	}
	for _, b := range by {
		l.faults[askKey{lookup, joinBy(b)}] = f
	}
	return nil
}

// canonical reports whether every by-value is an integer in the canonical form of servers. Then no
// other text of the same query can equal it and be answered in its place.
func canonical(by []string) bool {
	for _, v := range by {
		digits := strings.TrimPrefix(v, "-")
		if digits == "" || digits[0] == '0' && v != "0" || strings.Trim(digits, "0123456789") != "" {
			return false
		}
	}
	return true
}

// Expand does what a worker does with a row before it uses Redis: it runs the lookups of the row,
// and expands it. lookup gets the SQL of a lookup, which has one `?` for the list of by-values
// (tuples if they have several columns), and returns rows of the by-values and the found values, as
// text. The error is an *invalidation.RowError if the row has a fault.
func Expand(ctx context.Context, m *invalidation.Map, lookup func(ctx context.Context, query string, by [][]string, values int) ([][]string, error), row invalidation.Row) (invalidation.Plan, error) {
	b := &batch{m: m, changes: []change{{decoded: row}}}
	answers, err := b.resolve(ctx, lookup, m.Limits().KeysPerRow, false)
	if err != nil {
		return invalidation.Plan{}, err
	}
	if f := b.changes[0].fault; f != nil {
		return invalidation.Plan{}, f
	}
	return m.Expand(row, answers)
}
