package invalidation

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/unstale/unstale/internal/params"
)

// A Row is the content of an outbox row: one change of one entity.
type Row struct {
	// Entity names an entity of the map.
	Entity string
	// ID is the id of the thing that changed, as written. It is never empty in a row that expands.
	ID string
	// Params are the row's parameters.
	Params Params
}

type (
	// A Param is one parameter of a row: its Name, its Values as text exactly as written (a scalar
	// has one, a list any number), and whether it is a List, even of one value. Err is the reason
	// why a nested value, which has no Values, cannot be used.
	Param = params.Param
	// Params are the decoded parameters of a row, in the order written, as [ParseParams] reads
	// them. Names are unique; Get finds one.
	Params = params.Params
)

// ParseParams decodes the params column of a row, as [params.ParseNested] does: a nested value
// refuses the row where the map declares its name, which Expand knows. The error is a *RowError
// with BadParameter.
func ParseParams(src []byte) (Params, error) {
	decoded, err := params.ParseNested(src)
	if err == nil {
		return decoded, nil
	}
	if fault := (*params.Error)(nil); errors.As(err, &fault) {
		return nil, badParam(fault.Name, fault.Err)
	}
	return nil, err
}

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

// A Reason is the reason why a row cannot be applied and no retry helps. The set is closed: a
// reason is a metric label and a text in the dead letters. The worker sets LookupFailed and
// RedisRefused, and a trigger CaptureFailed.
type Reason string

const (
	// UnknownEntity: the map has no such entity.
	UnknownEntity Reason = "unknown_entity"
	// MissingParameter: a template needs a name that neither the row nor a lookup gave.
	MissingParameter Reason = "missing_parameter"
	// BadParameter: the id or a parameter cannot be used: not JSON, nested, empty in a pattern,
	// perhaps truncated.
	BadParameter Reason = "bad_parameter"
	// ParamsTooLarge: the parameters are longer than limits.params.
	ParamsTooLarge Reason = "params_too_large"
	// TooManyKeys: the row would expand to more than limits.keys_per_row.
	TooManyKeys Reason = "too_many_keys"
	// PatternTooWide: the literal prefix of a pattern is shorter than limits.pattern_prefix.
	PatternTooWide Reason = "pattern_too_wide"
	// LookupFailed: a lookup is broken: SQL that the server refuses, or an answer that was not
	// asked for.
	LookupFailed Reason = "lookup_failed"
	// RedisRefused: Redis refused one key of the row for good, such as NOPERM.
	RedisRefused Reason = "redis_refused"
	// CaptureFailed: a trigger could not insert the row, and the map lets the write succeed with
	// on_error: skip.
	CaptureFailed Reason = "capture_failed"
)

// Reasons returns all reasons, in a fixed order.
func Reasons() []Reason {
	return []Reason{
		UnknownEntity, MissingParameter, BadParameter, ParamsTooLarge,
		TooManyKeys, PatternTooWide, LookupFailed, RedisRefused, CaptureFailed,
	}
}

// A RowError is a fault of one row, as opposed to an outage.
type RowError struct {
	Reason Reason
	// Param names the parameter at fault; "id" is the row's id. It is empty where no single
	// parameter is.
	Param string
	// Err describes the problem. It may be nil.
	Err error
}

// Error returns the reason, the parameter and the cause on one line.
func (e *RowError) Error() string {
	text := string(e.Reason)
	if e.Param != "" {
		text += " " + strconv.Quote(e.Param)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Err }

func badParam(name string, err error) *RowError {
	return &RowError{Reason: BadParameter, Param: name, Err: err}
}
