// Package queue contains the SQL for cache_outbox and cache_outbox_delayed.
//
// [Queue.Claim] claims committed rows in one READ COMMITTED transaction that skips rows held by
// others. [Claim.Settle] deletes, delays and dead-letters them, writes the journal and commits.
//
// Guarantees:
//
//  1. Delivery is at least once: a crash rolls the claim back, and its rows are free immediately.
//  2. A claim never makes an application's insert wait.
//
// Limits: rows are not processed in a defined order. The package uses MySQL only. It does not
// depend on Redis or on the map.
package queue
