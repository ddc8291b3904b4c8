// Package outbox is what an application imports to tell unstale what it changed.
//
// [Enqueue] inserts invalidation rows in the transaction of the application's own write, and [InTx] also begins,
// commits and retries one: no commit, no row; a commit, a row. The worker claims what was committed.
//
//	err := outbox.InTx(ctx, db, func(tx *sql.Tx) error {
//		// ... the change ...
//		return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "product", ID: "42"})
//	})
//
// [InTxToken] also returns a token of the rows, by which [Wait] and [Settled] tell when their keys are gone from Redis.
//
// [SetTracer] gives every row the trace of its context, without importing a library for it here.
//
// Any language can do the same with plain SQL:
//
//	INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '42');
//
// The package links the standard library and go-sql-driver/mysql, and knows nothing of the worker, of Redis or of the
// map. The tables are made by `unstale migrate up`.
package outbox
