// Package outbox is what an application imports to tell unstale what it changed.
//
// [Enqueue] inserts invalidation rows in the transaction of the application's own write, and [InTx] also begins,
// commits and retries one: no commit, no row; a commit, a row. The worker claims what was committed.
//
// Any language can do the same with plain SQL:
//
//	INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', '42', '{"category_id": [7, 9]}');
//
// The package links the standard library and go-sql-driver/mysql, and knows nothing of the worker, of Redis or of the
// map. The tables are made by `unstale migrate up`.
package outbox
