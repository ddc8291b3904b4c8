// Package store is all SQL on the outbox's tables: claim, settle, dead letters, sweeps, journal and status, and the map's
// lookups.
//
// [Store.Claim] takes committed rows in one READ COMMITTED transaction that skips what others hold; [Claim.Settle]
// deletes, delays and dead-letters them, writes the journal and commits. A crash rolls the claim back and its rows are
// free at once, so delivery is at least once and nothing is lost; there is no order between rows. A claim never makes
// an application's insert wait, and a worker that vanishes without closing its connection is disconnected by the server
// after [Config.ClaimTimeout].
//
// The package knows MySQL (8.0.20 and later, MariaDB 10.6 and later) and nothing of Redis or of the map.
package store
