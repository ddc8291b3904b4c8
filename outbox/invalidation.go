package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/unstale/unstale/protocol"
)

// Limits of a row. A map can allow fewer bytes of parameters (limits.params): a row beyond that
// becomes a dead letter.
const (
	MaxEntity = 64             // characters of an entity's name
	MaxID     = protocol.MaxID // characters of an ID
	MaxTrace  = 128            // characters of a trace
	MaxParams = 64 * 1024      // bytes of the parameters as JSON
)

// An Invalidation records that an entity changed: the cached copies that the map derives from it
// are stale.
type Invalidation struct {
	// Entity is a name from the map, such as "product". Required, at most MaxEntity characters.
	Entity string
	// ID is the ID of the entity, exactly as in keys. Required, at most MaxID characters.
	ID string
	// Params are the values that the templates of the map need in addition to the ID. A value is a
	// string, a bool, a number (json.Number keeps any form) or a slice of those. Types derived from
	// them and pointers to them are allowed. Omit a value instead of passing nil. On a move or a
	// delete, also pass the old values: a lookup sees only the state after the change.
	Params map[string]any
	// RawParams is used instead of Params: a JSON object whose text is written as it is. Setting
	// both is a *FieldError.
	RawParams json.RawMessage
	// Trace is free text that the journal keeps, such as a W3C traceparent, which a worker that
	// makes spans links to. At most MaxTrace characters. Empty: what the function of SetTracer
	// yields.
	Trace string
	// NotBefore delays the row until then, in any time zone, with microsecond precision. Years 1970
	// to 9999. Zero: no delay.
	NotBefore time.Time
}

// Tx is a transaction: *sql.Tx, *sqlx.Tx or anything with these methods. A *sql.DB has no Commit,
// so enqueueing outside a transaction does not compile.
//
// In GORM it is tx.Statement.ConnPool.(outbox.Tx), in ent the dialect.Tx, asserted likewise;
// outside a transaction the assertion fails, so check it. docs/adopting.md has both.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}
