// Package store contains the SQL for the tables of unstale, on the sessions of package session. A
// [Store] has all parts:
//
//   - [Queue]: cache_outbox and cache_outbox_delayed. [Queue.Claim] claims committed rows in one READ
//     COMMITTED transaction that skips rows held by others. [Claim.Settle] deletes, delays and
//     dead-letters them, writes the journal and commits.
//   - [Journal]: the unlinked names: batches and their encoding, the record that a settlement writes,
//     reading and searching, summaries, expiry, positions and claims of batches to heal.
//   - [Sweeps]: requests of sweeps, and the lock, the progress and the failure of the workers that
//     sweep.
//   - [Minutes]: how many invalidations there were, how many were in time, and what checks of the
//     cache found, by minute. A batch is counted in the transaction that settles it, so exactly
//     once. Checks end later: their results of a minute are written as totals, so writing them again
//     is harmless. Each worker writes separate rows. Rows that are older than 25 hours are folded
//     into one per hour, and are deleted after 30 days.
//   - [StaleEntries]: what spot checks found. [LockRows]: rows of locks that nothing has taken for
//     long. [Workers]: the status records of workers.
//   - [Actions] and [Overview]: what operators do and see: dead letters, delayed rows, the pause, the
//     audit, the record of a replay, and the status of all tables.
//
// Guarantees:
//
//  1. Delivery is at least once: a crash rolls the claim back, and its rows are free immediately.
//  2. A claim never makes an application's insert wait.
//
// Limits: rows are not processed in a defined order. The package uses MySQL only. It does not
// depend on Redis or on the map.
package store
