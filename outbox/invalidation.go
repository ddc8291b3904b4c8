package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"
)

// Limits of what a row may carry. A map may allow fewer bytes of parameters (limits.params): a row beyond that becomes a
// dead letter.
const (
	MaxEntity = 64        // characters of an entity's name
	MaxID     = 255       // characters of an id
	MaxTrace  = 128       // characters of a trace
	MaxParams = 64 * 1024 // bytes of the parameters as JSON
)

// An Invalidation says that one thing changed: the cached copies that the map derives from it are stale.
type Invalidation struct {
	// Entity is a name from the map, such as "product". Required, at most MaxEntity characters.
	Entity string
	// ID is the entity's id, exactly as it stands in keys. Required, at most MaxID characters.
	ID string
	// Params are what the map's templates need beside the id. A value is a string, a bool, a number (json.Number keeps
	// any form) or a slice of those; types derived from them and pointers to them count as well. Leave a value out
	// rather than passing nil. On a move or a delete pass the old values too: a lookup sees only the state after the
	// change.
	Params map[string]any
	// RawParams is used instead of Params: a JSON object whose text is written as it is. Setting both is a *FieldError.
	RawParams json.RawMessage
	// Trace is free text that the journal keeps, such as a W3C traceparent, which a worker that makes spans links to. At most
	// MaxTrace characters. Empty: what the function of SetTracer yields.
	Trace string
	// NotBefore delays the row until then, in any time zone, to the microsecond. Years 1970 to 9999. Zero: at once.
	NotBefore time.Time
}

// Tx is a transaction: *sql.Tx, *sqlx.Tx or anything with these methods. A *sql.DB has no Commit, so enqueueing outside
// a transaction does not compile.
//
// In GORM it is tx.Statement.ConnPool.(outbox.Tx), in ent the dialect.Tx, asserted likewise; outside a transaction the
// assertion fails, so check it. docs/adopting.md has both.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}
