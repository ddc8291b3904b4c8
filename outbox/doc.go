// Package outbox is the MySQL side of unstale.
//
// Applications use [Enqueue] (or [InTx], which also begins, commits and retries) to insert invalidation rows
// in the transaction of their own write: no commit, no row; a commit, a row (W1). Any language can do the
// same with plain SQL: INSERT INTO cache_outbox (entity, entity_id, params) VALUES (...).
//
// The worker uses a [Store]: [Store.Claim] takes committed rows in one READ COMMITTED transaction that skips
// what others hold, [Claim.Settle] deletes, delays and buries them, writes the journal and commits. A crash
// rolls the claim back and its rows are free at once, so delivery is at least once and nothing is lost; there
// is no order between rows. A claim never makes an application's insert wait, and a worker that vanishes
// without closing its connection is thrown out by the server after [StoreConfig.ClaimTimeout].
//
// The package knows MySQL (8.0.20 and later, MariaDB 10.6 and later) and nothing of Redis or of the map.
package outbox
