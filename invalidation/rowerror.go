package invalidation

import "strconv"

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
