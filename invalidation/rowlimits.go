package invalidation

import "fmt"

// What one row may cost. A long value beside a long list would otherwise make hundreds of megabytes out of 64 KiB of
// parameters, which no journal and no packet could hold. Whatever forms a product counts its bytes before it is formed.
const (
	// maxRowBytes bounds the keys, patterns and sets that one row expands to together, and the ids with which it
	// expands as other entities.
	maxRowBytes = 16 << 20
	// MaxQuestionBytes bounds the values by which the lookups of one row are asked, together. Escaped, as part of one statement, it
	// is within the smallest default of max_allowed_packet.
	MaxQuestionBytes = 4 << 20
	// perKey bounds the scopes and the questions of a row by its keys. A scope may have no key of its own, and many of
	// them may ask the same, so there may be more of them.
	perKey = 10
)

// A spending is what a row has cost so far. Nothing in it overflows: a product is within limits.keys_per_row, and so is
// each value within limits.params.
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

// spendValues counts n values that are written to lists of their own: those that a lookup adds to, and those that go together.
func (x *expansion) spendValues(n int) error {
	if x.spent.values += n; x.spent.values > perKey*x.limits.KeysPerRow {
		return x.tooMany(fmt.Sprintf("the row gives, and its lookups find, more than %d values, %d for each of %%d keys", perKey*x.limits.KeysPerRow, perKey))
	}
	return nil
}

func (x *expansion) tooManyQuestions(l *Lookup) error {
	return x.tooMany("the row asks the lookup of " + l.Param + " more than %d questions")
}

// tooMany refuses a row by the number of what it makes; what says so with a %d for the limit.
func (x *expansion) tooMany(what string) error {
	return &RowError{Reason: TooManyKeys, Err: fmt.Errorf(what+" (limits.keys_per_row); write rows with fewer values, or raise the limit", x.limits.KeysPerRow)}
}

// tooLong refuses a row by the bytes of what it makes.
func tooLong(what string, most int) error {
	return &RowError{Reason: TooManyKeys, Err: fmt.Errorf("%s have more than %d bytes together; write shorter values, or rows with fewer of them", what, most)}
}
