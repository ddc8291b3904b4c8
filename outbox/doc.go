// Package outbox records, in the transaction of a write, which entities the write has changed.
// Applications import it.
//
// [Enqueue] inserts invalidation rows in the transaction of the application's write. [InTx] also
// begins, commits and retries the transaction. Rows commit or roll back together with the write,
// and a worker claims committed rows.
//
//	err := outbox.InTx(ctx, db, func(tx *sql.Tx) error {
//		// ... the change ...
//		return outbox.Enqueue(ctx, tx, outbox.Invalidation{Entity: "product", ID: "42"})
//	})
//
// [InTxToken] also returns a write token. [Wait] and [Settled] report when the keys of its rows are
// gone from Redis.
//
// [SetTracer] adds the trace of its context to every row. The package imports no tracing library.
//
// Any language can do the same with plain SQL:
//
//	INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '42');
//
// The package links the standard library and go-sql-driver/mysql, and is independent of the worker,
// of Redis and of the map. `unstale migrate up` creates the tables.
package outbox
