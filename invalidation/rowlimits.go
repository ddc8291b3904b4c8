package invalidation

import "fmt"

// Limits of the cost of one row. A long value combined with a long list would otherwise turn 64 KiB
// of parameters into hundreds of megabytes, which no journal and no packet could hold. The bytes of
// a product are counted before it is formed.
const (
	// maxRowBytes bounds the keys, patterns and sets of one row together, and the IDs with which it
	// expands as other entities.
	maxRowBytes = 8 << 20
	// MaxQuestionBytes bounds the by-values of the lookups of one row together. Escaped, as part of
	// one statement, they are within the smallest default of max_allowed_packet.
	MaxQuestionBytes = 4 << 20
	// perKey bounds the scopes and the questions of a row by its keys. A scope may have no key, and
	// many of them may ask the same, so there can be more of them.
	perKey = 10
)

// A spending is the cost of a row so far. No field overflows: a product is within
// limits.keys_per_row, and so is each value within limits.params.
type spending struct{ scopes, idBytes, questions, questionBytes, values int }

func (x *expansion) spendScope() error {
	if x.spent.scopes++; x.spent.scopes > perKey*x.limits.KeysPerRow {
		return x.tooMany(fmt.Sprintf("the row expands as more than %d others, %d for each of %%d keys", perKey*x.limits.KeysPerRow, perKey))
	}
	return nil
}

func (x *expansion) spendIDs(f *scope, a *alias, n int) error {
	if n > x.limits.KeysPerRow { // product stops counting there
		return x.tooMany("the row expands as more than %d others")
	}
	if x.spent.idBytes += f.bytes(&a.id, n); x.spent.idBytes > maxRowBytes {
		return tooLong(fmt.Sprintf("the ids with which it expands as %q", a.target.name), maxRowBytes)
	}
	return nil
}

func (x *expansion) spendQuestions(f *scope, s *slot, n int) error {
	if x.spent.questions += n; n > x.limits.KeysPerRow || x.spent.questions > perKey*x.limits.KeysPerRow {
		return x.tooManyQuestions(s.lookup)
	}
	for _, by := range s.by.slots {
		x.spent.questionBytes += f.share(by, n)
	}
	if x.spent.questionBytes > MaxQuestionBytes {
		return tooLong("the questions to the lookup of "+s.name, MaxQuestionBytes)
	}
	return nil
}

// spendValues counts n values that are written to new lists: values that a lookup adds to, and
// values that go together.
func (x *expansion) spendValues(n int) error {
	if x.spent.values += n; x.spent.values > perKey*x.limits.KeysPerRow {
		return x.tooMany(fmt.Sprintf("the row gives, and its lookups find, more than %d values, %d for each of %%d keys", perKey*x.limits.KeysPerRow, perKey))
	}
	return nil
}

func (x *expansion) tooManyQuestions(l *Lookup) error {
	return x.tooMany("the row asks the lookup of " + l.Param + " more than %d questions")
}

// tooMany refuses a row because of the number of its results; what has a %d for the limit.
func (x *expansion) tooMany(what string) error {
	return &RowError{Reason: TooManyKeys, Err: fmt.Errorf(what+" (limits.keys_per_row); write rows with fewer values, or raise the limit", x.limits.KeysPerRow)}
}

// tooLong refuses a row because of the bytes of its results.
func tooLong(what string, most int) error {
	return &RowError{Reason: TooManyKeys, Err: fmt.Errorf("%s have more than %d bytes together; write shorter values, or rows with fewer of them", what, most)}
}
