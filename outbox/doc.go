// Package outbox records which entities a transaction has changed, so that a worker can delete
// their cached copies from Redis after the commit.
//
// [Enqueue] inserts invalidation rows in the transaction of a write, so they commit or roll back
// with the write. [InTx] runs a function in a transaction, with commit and retries. A row is
// settled when the worker has deleted its keys.
//
//	err := outbox.InTx(ctx, db, func(tx *sql.Tx) error {
//		// ... the change ...
//		return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "product", ID: "42"})
//	})
//
// [InTxToken] also returns a write token, which identifies the rows. [Wait] waits until they are
// settled. With a [Check], a user reads their own writes even before that. [SetTracer] adds a trace
// ID to each row, without importing a tracing library.
//
// Programs in other languages use SQL:
//
//	INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '42');
//
// The package needs only a database connection, not Redis or the map. `unstale migrate up` creates
// the tables.
package outbox
