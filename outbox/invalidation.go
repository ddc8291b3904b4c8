package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

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
