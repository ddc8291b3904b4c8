package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/params"
	"github.com/unstale/unstale/protocol"
)

// Limits of a row. The map can set a lower limit for parameters (limits.params). A row that exceeds
// that limit becomes a dead letter.
const (
	MaxEntity = 64             // characters of an entity's name
	MaxID     = protocol.MaxID // characters of an ID
	MaxTrace  = 128            // characters of a trace
	MaxParams = 64 * 1024      // bytes of the parameters as JSON
)

// An Invalidation records that an entity changed. The map lists the keys that are stale then.
type Invalidation struct {
	// Entity is a name from the map, such as "product". Required, at most MaxEntity characters.
	Entity string
	// ID is the ID of the entity, exactly as in keys. Required, at most MaxID characters.
	ID string
	// Params are the other values that the map needs to make the keys, for example a category. A
	// value is a string, a bool, a number (json.Number keeps its form), a slice of these, or a type
	// derived from them. Omit unknown values; nil is an error. If a value changes, pass the old and
	// the new one in a slice, because the keys of both are stale.
	Params map[string]any
	// Required are the names of parameters that the map requires. Generated code sets them. A row
	// without one would become a dead letter, so it is an error. An empty list is no value, and
	// given.
	Required []string
	// RawParams replaces Params by the text of a JSON object. Set at most one of the two.
	RawParams json.RawMessage
	// Trace is free text that the worker records with the row, such as a W3C traceparent, to which
	// its spans link. At most MaxTrace characters. If it is empty, the function of SetTracer
	// provides it.
	Trace string
	// NotBefore is the earliest time at which the worker processes the row, with microsecond
	// precision, from 1970 to 9999. The zero time means no delay.
	NotBefore time.Time
}

// Tx is a transaction, such as *sql.Tx or *sqlx.Tx. *sql.DB does not implement Tx, so a call of
// Enqueue outside a transaction does not compile.
//
// For GORM and ent, see docs/adopting.md.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// A FieldError names the field of an invalidation that cannot be written, and the accepted values.
type FieldError struct {
	Index   int    // position among Enqueue's arguments, from 0
	Field   string // "entity", "id", "params", "params.NAME", "trace", "not_before"
	Problem string
}

// Error implements error.
func (e *FieldError) Error() string {
	return fmt.Sprintf("invalidation %d: %s: %s", e.Index, e.Field, e.Problem)
}

// Validate checks inv as [Enqueue] does, without writing it: nil or a *FieldError.
func (inv Invalidation) Validate() error {
	if _, err := inv.encode(); err != nil {
		return err
	}
	return nil
}

// ParamsJSON returns the parameters as Enqueue writes them, or nil without any. The error is that
// of Validate.
func (inv Invalidation) ParamsJSON() (json.RawMessage, error) {
	params, err := inv.encode()
	if err != nil {
		return nil, err
	}
	if text, ok := params.(string); ok {
		return json.RawMessage(text), nil
	}
	return nil, nil
}

// encode checks inv and returns the value of its params column: nil or JSON text.
func (inv Invalidation) encode() (any, *FieldError) {
	if err := checkText("entity", inv.Entity, MaxEntity, true); err != nil {
		return nil, err
	}
	if err := checkText("id", inv.ID, MaxID, true); err != nil {
		return nil, err
	}
	if err := checkText("trace", inv.Trace, MaxTrace, false); err != nil {
		return nil, err
	}
	if y := inv.NotBefore.UTC().Year(); !inv.NotBefore.IsZero() && (y < 1970 || y > 9999) {
		return nil, &FieldError{Field: "not_before", Problem: fmt.Sprintf("year %d is outside 1970 to 9999", y)}
	}
	params, err := inv.paramsText()
	if err != nil {
		return nil, err
	}
	if len(params) > MaxParams {
		return nil, &FieldError{Field: "params", Problem: fmt.Sprintf(
			"%d bytes of JSON are more than %d; pass ids, not documents", len(params), MaxParams)}
	}
	if err := checkRequired(params, inv.Required); err != nil {
		return nil, err
	}
	if params == "" {
		return nil, nil
	}
	return params, nil
}

// checkRequired refuses parameters, as JSON, that lack one that is required. An empty list is given.
func checkRequired(text string, required []string) *FieldError {
	if len(required) == 0 {
		return nil
	}
	given, _ := params.Parse([]byte(text)) // checked before
	for _, name := range required {
		if _, ok := given.Get(name); !ok {
			return &FieldError{Field: "params." + clip(name), Problem: "is missing; the map requires it"}
		}
	}
	return nil
}

func checkText(field, s string, limit int, required bool) *FieldError {
	switch n := utf8.RuneCountInString(s); {
	case s == "" && required:
		return &FieldError{Field: field, Problem: "is empty; it is required"}
	case !utf8.ValidString(s):
		return &FieldError{Field: field, Problem: fmt.Sprintf("%q is not valid UTF-8", clip(s))}
	case n > limit:
		return &FieldError{Field: field, Problem: fmt.Sprintf("%d characters are more than %d", n, limit)}
	}
	return nil
}

// clip keeps a value that is quoted in an error short.
func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

func (inv Invalidation) paramsText() (string, *FieldError) {
	if len(inv.RawParams) > 0 {
		if len(inv.Params) > 0 {
			return "", &FieldError{Field: "params", Problem: "Params and RawParams are both set; set one"}
		}
		return rawText(inv.RawParams)
	}
	if len(inv.Params) == 0 {
		return "", nil
	}
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(inv.Params)) {
		b.WriteByte("{,"[min(i, 1)])
		if err := appendName(&b, name); err != nil {
			return "", err
		}
		if err := appendParam(&b, inv.Params[name]); err != "" {
			return "", &FieldError{Field: "params." + clip(name), Problem: err}
		}
	}
	b.WriteByte('}')
	return b.String(), nil
}

// rawText checks a JSON object that the application wrote itself, by the rules of Params. A worker
// accepts nested values that its map does not declare.
func rawText(raw json.RawMessage) (string, *FieldError) {
	if len(raw) > MaxParams { // before reading all of it
		return string(raw), nil
	}
	_, err := params.Parse(raw)
	if err == nil {
		return string(raw), nil
	}
	refusal := &FieldError{Field: "params", Problem: err.Error()}
	if fault := (*params.Error)(nil); errors.As(err, &fault) && fault.Name != "" {
		refusal.Field, refusal.Problem = "params."+clip(fault.Name), fault.Err.Error()
	}
	return "", refusal
}

func appendName(b *strings.Builder, name string) *FieldError {
	if name == "" {
		return &FieldError{Field: "params", Problem: "a parameter has an empty name"}
	}
	if !utf8.ValidString(name) {
		return &FieldError{Field: "params", Problem: fmt.Sprintf("the name %q is not valid UTF-8", clip(name))}
	}
	b.WriteString(quote(name))
	b.WriteByte(':')
	return nil
}

// appendParam writes a scalar or a list of scalars; it returns the problem, or "".
func appendParam(b *strings.Builder, value any) string {
	v := deref(reflect.ValueOf(value))
	if v.IsValid() && (v.Kind() == reflect.Slice || v.Kind() == reflect.Array) && v.Type().Elem().Kind() != reflect.Uint8 {
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			if problem := appendScalar(b, deref(v.Index(i))); problem != "" {
				return fmt.Sprintf("element %d: %s", i, problem)
			}
		}
		b.WriteByte(']')
		return ""
	}
	return appendScalar(b, v)
}

func deref(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

var numberType = reflect.TypeFor[json.Number]()

func appendScalar(b *strings.Builder, v reflect.Value) string {
	if !v.IsValid() {
		return "is nil; leave it out"
	}
	switch v.Kind() {
	case reflect.String:
		s := v.String()
		switch {
		case v.Type() == numberType && !isNumber(s):
			return fmt.Sprintf("%q is not a JSON number", clip(s))
		case v.Type() == numberType:
			b.WriteString(s)
		case !utf8.ValidString(s):
			return fmt.Sprintf("%q is not valid UTF-8", clip(s))
		default:
			b.WriteString(quote(s))
		}
	case reflect.Bool:
		b.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		b.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		b.WriteString(strconv.FormatUint(v.Uint(), 10))
	case reflect.Float32, reflect.Float64:
		f := v.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Sprintf("%v is not a number that JSON can represent", f)
		}
		b.WriteString(strconv.FormatFloat(f, 'f', -1, v.Type().Bits()))
	default:
		return fmt.Sprintf("a %s is neither a scalar nor a list of scalars; pass text, a number, a bool or a slice of those", v.Type())
	}
	return ""
}

func isNumber(s string) bool {
	return s != "" && !strings.ContainsAny(s, "\"[{ \t\r\ntfn") && json.Valid([]byte(s))
}

// quote writes s, which is valid UTF-8, as a JSON string. encoding/json also escapes <, > and &,
// which changes the text of the row but not its value.
func quote(s string) string {
	out, _ := json.Marshal(s) // text: it cannot fail
	return string(out)
}
